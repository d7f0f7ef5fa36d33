# One library target per room, one test program per test file or small group of them.
# Warnings are errors for Baton's code; false positives of g++ 12 are switched off by name.
add_library(baton_plain_options INTERFACE)  # what all presets have
target_include_directories(baton_plain_options INTERFACE ${PROJECT_SOURCE_DIR})  # the one include root
target_compile_options(baton_plain_options INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor -Wold-style-cast -Wconversion -Wno-sign-conversion -Werror
  -ffp-contract=off -fno-omit-frame-pointer  # contraction would change bits (docs/NUMERICS.md N7)
  -pthread)  # some libraries ask for it, and precompiled headers need one set of macros
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  target_compile_options(baton_plain_options INTERFACE -Wno-restrict -Wno-maybe-uninitialized
    --param=ggc-min-expand=400 --param=ggc-min-heapsize=1500000)  # collects late: 9 % faster builds
else()  # clang has warnings of its own
  target_compile_options(baton_plain_options INTERFACE -Wno-deprecated-declarations
    -Wno-missing-designated-field-initializers -Wno-string-concatenation
    "SHELL:-Xclang -fno-pch-timestamp")  # ccache keeps precompiled headers
endif()
add_library(baton_options INTERFACE)
target_link_libraries(baton_options INTERFACE baton_plain_options)
# BOOST_DISABLE_ASSERTS: Beast asserts on some inputs of hostile clients.
target_compile_definitions(baton_options INTERFACE BOOST_DISABLE_ASSERTS
  $<$<BOOL:${BATON_DCHECK}>:BATON_DCHECK_IS_ON=1>)
if(BATON_PRECOMPILE AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # g++ 12 sees false overflows in texts that are appended when <string> is precompiled. The preset
  # `dev` keeps these warnings.
  target_compile_options(baton_options INTERFACE -Wno-array-bounds -Wno-stringop-overflow -Wno-stringop-overread)
endif()
if(BATON_SANITIZE STREQUAL "address")
  # Leaves out the checks of UBSan that AddressSanitizer has too, or that x86 allows: they cost a
  # third of the compile time.
  target_compile_options(baton_options INTERFACE -fsanitize=address,undefined
    -fno-sanitize=null,alignment,object-size,vptr -fno-sanitize-recover=undefined)
  target_link_options(baton_options INTERFACE -fsanitize=address,undefined)
elseif(BATON_SANITIZE STREQUAL "thread")
  target_compile_options(baton_options INTERFACE -fsanitize=thread -Wno-tsan)
  target_link_options(baton_options INTERFACE -fsanitize=thread)
elseif(BATON_SANITIZE STREQUAL "fuzz")
  target_compile_options(baton_options INTERFACE -fsanitize=fuzzer-no-link,address,undefined
    -fno-sanitize=vptr -fno-sanitize-recover=undefined)
  target_link_options(baton_options INTERFACE -fsanitize=address,undefined)
endif()

# What the product has beyond that: a smashed stack, an overflowing copy or a jump to a wrong place ends
# the process, and nothing that links read once can be written (docs/SECURITY.md).
add_library(baton_hardened INTERFACE)
if(NOT BATON_SANITIZE)
  target_compile_options(baton_hardened INTERFACE -fstack-protector-strong -fstack-clash-protection
    -fcf-protection=full -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2)
  target_link_options(baton_hardened INTERFACE -pie -Wl,-z,relro,-z,now,-z,noexecstack)
endif()

# HOT targets are those that tests spend their time in. Under AddressSanitizer they are optimised,
# all others are compiled for a short compile time: calls check their addresses.
function(baton_speed name is_hot)
  if(NOT BATON_SANITIZE STREQUAL "address")
    return()
  endif()
  if(is_hot)
    target_compile_options(${name} PRIVATE -O1)
  else()
    target_compile_options(${name} PRIVATE --param=asan-instrumentation-with-call-threshold=0)
  endif()
endfunction()

# Headers that most files include are compiled once for each set of flags. Files with flags of their
# own read them as text (SKIP_PRECOMPILE_HEADERS), and so does every file of the preset `dev`, which
# finds an include that a file forgets.
set(BATON_STD_HEADERS <algorithm> <array> <chrono> <cstdint> <cstring> <deque> <functional> <limits>
  <list> <map> <memory> <mutex> <numeric> <optional> <set> <span> <string> <string_view> <utility>
  <variant> <vector> <absl/container/flat_hash_map.h> <absl/status/status.h> <absl/status/statusor.h>
  <absl/strings/str_cat.h> <absl/strings/str_format.h> <absl/time/time.h>)
set(BATON_NO_SOURCE ${PROJECT_SOURCE_DIR}/cmake/headers.cc)  # beside the precompiled headers
# baton_headers_of_rooms(NAME): for libraries.
function(baton_headers_of_rooms name)
  add_library(${name} STATIC ${BATON_NO_SOURCE})
  target_link_libraries(${name} PRIVATE baton_options baton_hardened absl::flat_hash_map absl::status absl::statusor
    absl::str_format absl::strings absl::time)
  target_precompile_headers(${name} PRIVATE ${BATON_STD_HEADERS})
endfunction()
# Assertions without a try block each compile faster; an exception ends its test case either way.
add_library(baton_assertions INTERFACE)
target_link_libraries(baton_assertions INTERFACE Catch2::Catch2)
target_compile_definitions(baton_assertions INTERFACE CATCH_CONFIG_FAST_COMPILE)
# baton_headers_of_tests(NAME): a program, because position independence must be that of programs.
function(baton_headers_of_tests name)
  add_executable(${name} ${BATON_NO_SOURCE} $<TARGET_OBJECTS:baton_test_main>)
  target_link_libraries(${name} PRIVATE baton_options baton_assertions)
  target_precompile_headers(${name} PRIVATE <catch2/catch.hpp> ${BATON_STD_HEADERS})
endfunction()
if(BATON_PRECOMPILE)
  baton_headers_of_rooms(baton_room_headers)
  baton_headers_of_rooms(baton_hot_room_headers)
  baton_speed(baton_room_headers OFF)
  baton_speed(baton_hot_room_headers ON)
endif()
# baton_reuse_headers(NAME OWNER): NAME reads the headers that OWNER compiles.
function(baton_reuse_headers name owner)
  if(BATON_PRECOMPILE)
    target_precompile_headers(${name} REUSE_FROM ${owner})
  endif()
endfunction()

# baton_library(NAME [HOT] SRCS a.cc b.cc DEPS baton_common absl::status [PRIVATE_DEPS ...])
function(baton_library name)
  cmake_parse_arguments(arg "HOT" "" "SRCS;DEPS;PRIVATE_DEPS" ${ARGN})
  add_library(${name} STATIC ${arg_SRCS})
  target_link_libraries(${name} PUBLIC ${arg_DEPS} PRIVATE baton_options baton_hardened ${arg_PRIVATE_DEPS})
  baton_speed(${name} ${arg_HOT})
  if(arg_HOT)
    baton_reuse_headers(${name} baton_hot_room_headers)
  else()
    baton_reuse_headers(${name} baton_room_headers)
  endif()
endfunction()

add_custom_target(sanitize_tests)  # the tests of the ASan + UBSan slice
add_custom_target(tsan_tests)      # the tests of the TSan slice

# baton_test(NAME [HOT] SRCS a_test.cc DEPS baton_engine [LABELS unit] [TIMEOUT 120])
# Labels: unit (default), sanitize (also in the ASan/UBSan slice), tsan (also in the TSan slice), e2e.
# TSAN_CASES: test cases that the TSan slice runs; without it, all. The ASan slice leaves out cases
# with the tag [slow]: many inputs of what other cases of the slice run too.
# HOT: the test itself computes much; other tests are not optimised.
function(baton_test name)
  cmake_parse_arguments(arg "HOT" "TIMEOUT" "SRCS;DEPS;LABELS;TSAN_CASES" ${ARGN})
  add_executable(${name} ${arg_SRCS} $<TARGET_OBJECTS:baton_test_main>)
  target_compile_definitions(${name} PRIVATE BATON_TEST_DATA="${PROJECT_SOURCE_DIR}/tests/data"
    BATON_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  target_link_libraries(${name} PRIVATE baton_options baton_assertions ${arg_DEPS})
  baton_speed(${name} ${arg_HOT})
  if(arg_HOT)
    baton_reuse_headers(${name} baton_hot_test_headers)
  else()
    target_compile_options(${name} PRIVATE -O0)  # hundreds of assertions compile twice as fast
    baton_reuse_headers(${name} baton_test_headers)
  endif()
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 300)
  endif()
  if(NOT arg_LABELS)
    set(arg_LABELS unit)
  endif()
  foreach(slice sanitize tsan)
    if(slice IN_LIST arg_LABELS)
      add_dependencies(${slice}_tests ${name})
    endif()
  endforeach()
  set(cases)
  if(BATON_SANITIZE STREQUAL "address")
    set(cases ~[.]~[slow])  # a filter of one's own would take in the cases that are commands
  elseif(BATON_SANITIZE STREQUAL "thread")
    set(cases ${arg_TSAN_CASES})
  endif()
  add_test(NAME ${name} COMMAND ${name} -w NoTests ${cases})
  set_tests_properties(${name} PROPERTIES TIMEOUT ${arg_TIMEOUT} LABELS "${arg_LABELS}")
endfunction()

# baton_cluster_test(NAME): a test of several processes. One runs at a time and leaves a core to a test
# of another kind; COST lets them begin first, so that the other kind lasts as long.
function(baton_cluster_test name)
  set_tests_properties(${name} PROPERTIES RESOURCE_LOCK cluster COST 100)
endfunction()

# Kernel units run only on machines that have their instructions (engine/cpu/machine/isa.h), so
# each gets its own flags and everything else stays plain x86-64. A kernel unit includes only
# <immintrin.h>, <cstdint> and engine/numerics: an inline function of any other header could be the
# copy that the linker keeps for all units.
set(BATON_AVX2 -O3 -mavx2 -mfma -mf16c)
# The AVX-512 header of g++ 12 triggers -Wuninitialized.
set(BATON_AVX512 ${BATON_AVX2} -mavx512f -mavx512bw -mavx512dq -mavx512vl
  -mprefer-vector-width=512 -Wno-uninitialized)
set(BATON_AVX512VNNI ${BATON_AVX512} -mavx512vnni)
set(BATON_AVX512BF16 ${BATON_AVX512VNNI} -mavx512bf16)
set(BATON_PLAIN_AVX2 ${BATON_AVX2})
# Under AddressSanitizer a unit checks what it reads and writes, by calls: checks in place take up to
# three minutes of compile time per unit. Its registers' stack slots and undefined arithmetic are not
# checked.
if(BATON_SANITIZE STREQUAL "address")
  foreach(flags BATON_AVX2 BATON_AVX512 BATON_AVX512VNNI BATON_AVX512BF16)
    list(APPEND ${flags} -fno-sanitize=undefined --param=asan-stack=0
      --param=asan-instrumentation-with-call-threshold=0)
  endforeach()
endif()
# baton_kernel_unit("<flags>" FILE...)
function(baton_kernel_unit flags)
  set_source_files_properties(${ARGN} PROPERTIES COMPILE_OPTIONS "${flags}" SKIP_PRECOMPILE_HEADERS ON)
  set_property(GLOBAL APPEND PROPERTY BATON_KERNEL_UNITS ${ARGN})
endfunction()
# baton_kernel_objects(NAME UNITS a.cc...): kernel units compiled by one command in all presets, so
# ccache answers in all but the first. Never with a sanitizer.
function(baton_kernel_objects name)
  add_library(${name} OBJECT ${ARGN})
  set_target_properties(${name} PROPERTIES COMPILE_OPTIONS "-O2;-g1;-DNDEBUG")
  target_link_libraries(${name} PRIVATE baton_plain_options)
endfunction()
# baton_emulation_library(NAME UNITS a.cc SRCS b.cc DEPS baton_engine): kernels for tests whose
# instructions are emulated (tests/engine/cpu/zmm_on_ymm.h, which UNITS see first). UNITS are kernel
# units for AVX2, optimised, but without unrolling: kernels ask for it everywhere, and each emulated
# instruction is several, so compiling would take minutes. -Wno-psabi: g++ notes that 64-byte structs
# were passed differently before version 4.6.
function(baton_emulation_library name)
  cmake_parse_arguments(arg "" "" "UNITS;SRCS;DEPS" ${ARGN})
  baton_kernel_objects(${name}_units ${arg_UNITS})
  baton_library(${name} SRCS $<TARGET_OBJECTS:${name}_units> ${arg_SRCS} DEPS ${arg_DEPS})
  set(flags ${BATON_PLAIN_AVX2} -O1 -fno-tree-loop-optimize -finline-small-functions -Wno-psabi
    -include tests/engine/cpu/zmm_on_ymm.h)
  baton_kernel_unit("${flags}" ${arg_UNITS})
endfunction()
