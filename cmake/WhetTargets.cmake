# whet_library(NAME [SOURCES f...] [DEPS t...] [PRIVATE_DEPS t...])
#   one static library per folder, called whet_<folder>_<sub-folder>; headers are included from the repository root
function(whet_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS;PRIVATE_DEPS" ${ARGN})
  add_library(${name} STATIC ${ARG_SOURCES})
  target_include_directories(${name} PUBLIC ${CMAKE_SOURCE_DIR} ${CMAKE_BINARY_DIR})
  target_link_libraries(${name} PUBLIC ${ARG_DEPS} PRIVATE ${ARG_PRIVATE_DEPS})
endfunction()

# whet_program(NAME SOURCES f... DEPS t...)
function(whet_program name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR} ${CMAKE_BINARY_DIR})
  target_link_libraries(${name} PRIVATE ${ARG_DEPS})
endfunction()

# whet_test(NAME LABEL label SOURCES f... DEPS t... [ENV VAR=value...])
#   a GoogleTest program, its sources in one unity build (the largest lever on build time here), one ctest entry
function(whet_test name)
  cmake_parse_arguments(ARG "" "LABEL" "SOURCES;DEPS;ENV" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  set_target_properties(${name} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 16
                        RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR} ${CMAKE_BINARY_DIR})
  target_link_libraries(${name} PRIVATE ${ARG_DEPS} GTest::gtest_main GTest::gmock)
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES LABELS "${ARG_LABEL}" TIMEOUT 300
    ENVIRONMENT "WHET_SOURCE_DIR=${CMAKE_SOURCE_DIR};WHET_BIN_DIR=${CMAKE_BINARY_DIR}/bin;${ARG_ENV}")
endfunction()

# whet_catalog(VAR_PREFIX records...) writes a header that declares and a source that lists
# `const Record& <Prefix><Name>()` for each file name: explicit calls, because a self-registering
# static in a static library is dropped by the linker.
