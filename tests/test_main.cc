// The one main of all Catch2 test programs, compiled once.
#define CATCH_CONFIG_MAIN
#include <catch2/catch.hpp>
