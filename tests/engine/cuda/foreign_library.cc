// A library that is no plugin, for plugin_loader_test.
extern "C" int baton_foreign_function() { return 1; }
