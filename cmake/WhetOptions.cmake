# Compiler flags, ccache, linker and sanitizers.
option(WHET_UNITY "compile the sources of a library several at a time: a clean build takes half as long, a rebuild after \
one edit longer" ON)
option(WHET_WERROR "treat warnings as errors" ON)
set(WHET_SANITIZE "" CACHE STRING "sanitizers for every target, e.g. address,undefined")
option(WHET_LIBFUZZER "link fuzz targets with libFuzzer and instrument everything for it (clang only)" OFF)
set(WHET_FUZZ_SECONDS 20 CACHE STRING "how long each libFuzzer target runs in ctest")

find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM AND NOT DEFINED ENV{WHET_NO_CCACHE})
  # Paths below this folder do not count: another clone finds the same objects.
  set(ccache ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} CCACHE_NOHASHDIR=1 ${CCACHE_PROGRAM})
  set(CMAKE_C_COMPILER_LAUNCHER ${ccache})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${ccache})
endif()
find_program(MOLD_PROGRAM mold)
if(MOLD_PROGRAM)
  add_link_options(-fuse-ld=mold)
endif()

add_compile_options(-Wall -Wextra -Wno-unused-parameter -Wno-missing-field-initializers)
# A switch over one of our closed enums must name every value.
add_compile_options(-Werror=switch)
if(WHET_WERROR)
  add_compile_options(-Werror)
  # gcc 12 reports these from inside the standard library at -O2.
  if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
    add_compile_options(-Wno-error=maybe-uninitialized -Wno-error=restrict -Wno-error=array-bounds
                        -Wno-error=stringop-overflow -Wno-error=stringop-overread
                        -Wno-error=free-nonheap-object -Wno-error=dangling-pointer)
  endif()
endif()
set(CMAKE_CXX_FLAGS_RELEASE "-O2")  # assertions of our own stay on: they are CHECKs, not assert()
if(CMAKE_CXX_COMPILER_ID STREQUAL Clang)
  # gcc 12's own std::stable_sort uses what it deprecates.
  add_compile_options(-Wno-deprecated-declarations)
endif()
if(WHET_SANITIZE)
  add_compile_options(-fsanitize=${WHET_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${WHET_SANITIZE})
endif()
if(WHET_LIBFUZZER)
  if(NOT CMAKE_CXX_COMPILER_ID STREQUAL Clang)
    message(FATAL_ERROR "WHET_LIBFUZZER needs clang (preset fuzz): ${CMAKE_CXX_COMPILER} is ${CMAKE_CXX_COMPILER_ID}")
  endif()
  add_compile_options(-fsanitize=fuzzer-no-link)
  add_link_options(-fsanitize=fuzzer-no-link)
endif()
