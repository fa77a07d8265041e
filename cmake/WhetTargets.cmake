# whet_batches(OUT BATCH f...): sources that include BATCH of the given ones each; generated ones stay alone, and so do
#   those with compile options of their own, which have to be set before.
#   CMake's own unity builds include by absolute path, and so no other clone's objects would be found in the cache.
function(whet_batches out batch)
  set(result "")
  set(text "")
  set(count 0)
  set(number 0)
  foreach(source IN LISTS ARGN)
    get_source_file_property(options ${source} COMPILE_OPTIONS)
    if(options OR IS_ABSOLUTE "${source}" OR NOT source MATCHES "[.]cc$")
      list(APPEND result "${source}")
      continue()
    endif()
    file(RELATIVE_PATH path ${CMAKE_SOURCE_DIR} ${CMAKE_CURRENT_SOURCE_DIR}/${source})
    string(APPEND text "#include \"${path}\"\n")
    math(EXPR count "${count} + 1")
    if(count EQUAL batch)
      whet_write_batch(result ${name}_${number} "${text}")
      math(EXPR number "${number} + 1")
      set(text "")
      set(count 0)
    endif()
  endforeach()
  if(text)
    whet_write_batch(result ${name}_${number} "${text}")
  endif()
  set(${out} "${result}" PARENT_SCOPE)
endfunction()
function(whet_write_batch list stem text)
  set(file ${CMAKE_CURRENT_BINARY_DIR}/batches/${stem}.cc)
  file(CONFIGURE OUTPUT ${file} CONTENT "${text}" @ONLY)
  set(${list} "${${list}};${file}" PARENT_SCOPE)
endfunction()

# whet_library(NAME [SEPARATE] [SOURCES f...] [DEPS t...] [PRIVATE_DEPS t...])
#   one static library per folder, called whet_<folder>_<sub-folder>; headers are included from the repository root.
#   Its sources are compiled several at a time (WHET_UNITY), so what they keep to themselves needs names that differ;
#   SEPARATE: one by one, for sources that are heavy each or not ours
function(whet_library name)
  cmake_parse_arguments(ARG "SEPARATE" "" "SOURCES;DEPS;PRIVATE_DEPS" ${ARGN})
  if(WHET_UNITY AND NOT ARG_SEPARATE)
    whet_batches(ARG_SOURCES 6 ${ARG_SOURCES})
  endif()
  add_library(${name} STATIC ${ARG_SOURCES})
  target_include_directories(${name} PUBLIC ${CMAKE_SOURCE_DIR} ${CMAKE_BINARY_DIR})
  target_link_libraries(${name} PUBLIC ${ARG_DEPS} PRIVATE ${ARG_PRIVATE_DEPS})
endfunction()

# For libraries that call functions of artifacts: clang's -fsanitize=function reads a type hash in front of the callee,
# where generated code has none and, at the start of a page, there may be nothing.
function(whet_calls_artifacts name)
  if(WHET_SANITIZE AND CMAKE_CXX_COMPILER_ID STREQUAL Clang)
    target_compile_options(${name} PRIVATE -fno-sanitize=function)
  endif()
endfunction()

# What ./setup builds before it runs the demo: every program, no test.
add_custom_target(programs)
# What .ci/run builds with the sanitizers: unit and golden tests and the fuzz targets, and only what they need.
add_custom_target(sanitized)

# whet_program(NAME SOURCES f... DEPS t...)
function(whet_program name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS" ${ARGN})
  if(WHET_UNITY)
    whet_batches(ARG_SOURCES 6 ${ARG_SOURCES})
  endif()
  add_executable(${name} ${ARG_SOURCES})
  target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR} ${CMAKE_BINARY_DIR})
  target_link_libraries(${name} PRIVATE ${ARG_DEPS})
  add_dependencies(programs ${name})
endfunction()

# whet_test(NAME LABEL label SOURCES f... DEPS t... [PROGRAMS p...] [ENV VAR=value...] [EACH])
#   a GoogleTest program, its sources in one unity build (the largest lever on build time here), one ctest entry;
#   PROGRAMS are those of our programs that the test starts, so that building the test builds them;
#   EACH: one ctest entry per TEST instead, so that one that is skipped shows as such and hides no other
function(whet_test name)
  cmake_parse_arguments(ARG "EACH" "LABEL" "SOURCES;DEPS;PROGRAMS;ENV" ${ARGN})
  set(sources ${ARG_SOURCES})
  whet_batches(ARG_SOURCES 16 ${ARG_SOURCES})
  add_executable(${name} ${ARG_SOURCES})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR} ${CMAKE_BINARY_DIR})
  target_link_libraries(${name} PRIVATE ${ARG_DEPS} GTest::gtest_main GTest::gmock)
  if(ARG_EACH)
    gtest_add_tests(TARGET ${name} SOURCES ${sources} TEST_LIST tests)
    set_tests_properties(${tests} PROPERTIES SKIP_REGULAR_EXPRESSION "\\[  SKIPPED \\]")
  else()
    add_test(NAME ${name} COMMAND ${name})
    set(tests ${name})
  endif()
  set_tests_properties(${tests} PROPERTIES LABELS "${ARG_LABEL}" TIMEOUT 300
    ENVIRONMENT "WHET_SOURCE_DIR=${CMAKE_SOURCE_DIR};WHET_BIN_DIR=${CMAKE_BINARY_DIR}/bin;${ARG_ENV}")
  if(ARG_PROGRAMS)
    add_dependencies(${name} ${ARG_PROGRAMS})
  endif()
  if(ARG_LABEL MATCHES "^(unit|golden)$")
    add_dependencies(sanitized ${name})
  endif()
endfunction()

# whet_fuzz(NAME SOURCES f... DEPS t... [RUNS n])
#   SOURCES define LLVMFuzzerTestOneInput; seed inputs lie in tests/fuzz/corpus/NAME/. One ctest entry, label fuzz:
#   with WHET_LIBFUZZER it is a libFuzzer program that runs for WHET_FUZZ_SECONDS; otherwise tests/fuzz/driver.cc
#   feeds it the corpus and RUNS mutations of it from a fixed seed, so that the plain test run covers it too.
function(whet_fuzz name)
  cmake_parse_arguments(ARG "" "RUNS" "SOURCES;DEPS" ${ARGN})
  if(NOT ARG_RUNS)
    set(ARG_RUNS 20000)
  endif()
  set(corpus ${CMAKE_SOURCE_DIR}/tests/fuzz/corpus/${name})
  set(found ${CMAKE_BINARY_DIR}/tests/fuzz/${name})
  file(MAKE_DIRECTORY ${found})
  add_executable(${name} ${ARG_SOURCES})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR} ${CMAKE_BINARY_DIR})
  target_link_libraries(${name} PRIVATE ${ARG_DEPS})
  if(WHET_LIBFUZZER)
    # New inputs go to the build folder, the first one named; the committed corpus is only read.
    target_link_options(${name} PRIVATE -fsanitize=fuzzer)
    add_test(NAME ${name} COMMAND ${name} -max_total_time=${WHET_FUZZ_SECONDS} -timeout=10 -rss_limit_mb=2048
      -seed=1 -print_final_stats=1 -artifact_prefix=${found}/ ${found} ${corpus})
  else()
    target_sources(${name} PRIVATE ${CMAKE_SOURCE_DIR}/tests/fuzz/driver.cc)
    add_test(NAME ${name} COMMAND ${name} ${ARG_RUNS} ${found}/last-input ${corpus})
  endif()
  set_tests_properties(${name} PROPERTIES LABELS fuzz TIMEOUT 300)
  add_dependencies(sanitized ${name})
endfunction()

# whet_catalog(VAR_PREFIX records...) writes a header that declares and a source that lists
# `const Record& <Prefix><Name>()` for each file name: explicit calls, because a self-registering
# static in a static library is dropped by the linker.
