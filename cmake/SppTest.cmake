# spp_test(NAME unit.base SOURCES parse_test.cpp … DEPENDS base … [LABELS unit …] [TIMEOUT seconds]
#          [COST seconds] [ARGS …] [LINK …] [BY_FILE])
#
# One Catch2 executable and one ctest entry of the same name for a folder of tests. Run it alone for
# Catch2's own choice of tests: build/ci/tests/unit.base "parse*". Its working directory is the root
# of the sources. A test that must be skipped calls spp::test::skip("why") (tests/support/catch.hpp).
# COST: about how long it takes, where that is long: the longest begin first, so that none is waited for at the end.
# BY_FILE: an entry for each file of tests instead, cli.contract.errors for errors_test.cpp, so that long ones run side by side.
# Without Catch2 the program is built all the same, and BUILD_TESTING is off from here on.
find_package(Catch2 QUIET)
if(NOT Catch2_FOUND OR Catch2_VERSION VERSION_LESS 2.13)
  spp_summary("tests" "off: Catch2 2.13 or newer was not found (catch2)")
  set(BUILD_TESTING OFF)
  return()
endif()
spp_summary("Catch2" "${Catch2_VERSION}")
string(REGEX MATCH "^[0-9]+" SPP_CATCH2_VERSION "${Catch2_VERSION}")  # tests/support/catch.hpp

# How much longer anything may take in this build than in an optimised one: time-outs of tests, and
# what tests wait for inside (tests/support/patience.hpp, PATIENCE of tests/mpi).
set(SPP_TEST_PATIENCE 1)
if(SPP_SANITIZE MATCHES "thread")
  set(SPP_TEST_PATIENCE 12)
elseif(SPP_SANITIZE)
  set(SPP_TEST_PATIENCE 6)
elseif(CMAKE_BUILD_TYPE STREQUAL "Debug")
  set(SPP_TEST_PATIENCE 4)
endif()

# Tests over many cases that are alike take one of so many (tests/conformance/cases.hpp): all of them in an
# optimised build, which scripts/deep-check runs.
set(SPP_TEST_THINNING 2)
if(CMAKE_BUILD_TYPE STREQUAL "Release")
  set(SPP_TEST_THINNING 1)
elseif(CMAKE_BUILD_TYPE STREQUAL "Debug")
  set(SPP_TEST_THINNING 8)
endif()

# The code of tests itself is compiled quickly in sanitized builds (-O0): it calls what takes the time, and
# there is as much of it as of what it tests. (Elsewhere it saves less than slower tests take.)
function(spp_compiled_quickly)
  if(SPP_SANITIZE)
    foreach(target IN LISTS ARGN)
      target_compile_options(${target} PRIVATE -O0)
    endforeach()
  endif()
endfunction()

add_custom_target(tests_unit)
add_custom_target(tests_cli)

# spp_test_timeout(300 unit.base …): seconds in an optimised build. For every add_test of ours.
function(spp_test_timeout seconds)
  math(EXPR seconds "${seconds} * ${SPP_TEST_PATIENCE}")
  set_tests_properties(${ARGN} PROPERTIES TIMEOUT ${seconds})
endfunction()

# spp_test_code(target [what it links …]): how code that includes Catch2 is compiled.
function(spp_test_code target)
  target_link_libraries(${target} PRIVATE spp_test_support ${ARGN})
  spp_warnings(${target})
  spp_precompiled(${target} tests)
  spp_compiled_quickly(${target} spp_test_headers)
endfunction()

function(spp_test)
  cmake_parse_arguments(PARSE_ARGV 0 arg "BY_FILE" "NAME;TIMEOUT;COST" "SOURCES;DEPENDS;LABELS;ARGS;LINK")
  spp_no_leftovers(spp_test "${arg_UNPARSED_ARGUMENTS}")
  string(REPLACE "." "_" target "test_${arg_NAME}")
  add_executable(${target} ${arg_SOURCES})
  set_target_properties(${target} PROPERTIES OUTPUT_NAME "${arg_NAME}"
    RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/tests")
  list(TRANSFORM arg_DEPENDS PREPEND "spp::")
  spp_test_code(${target} ${arg_DEPENDS} ${arg_LINK})

  set(tests ${arg_NAME})
  if(arg_BY_FILE)
    set(tests "")
    foreach(file IN LISTS arg_SOURCES)
      if(file MATCHES "^(.*)_test\\.cpp$")
        # Catch2 makes the file's name a tag of its tests.
        add_test(NAME ${arg_NAME}.${CMAKE_MATCH_1} COMMAND ${target} --filenames-as-tags "[#${CMAKE_MATCH_1}_test]" ${arg_ARGS}
          WORKING_DIRECTORY "${PROJECT_SOURCE_DIR}")
        list(APPEND tests ${arg_NAME}.${CMAKE_MATCH_1})
      endif()
    endforeach()
  else()
    add_test(NAME ${arg_NAME} COMMAND ${target} ${arg_ARGS} WORKING_DIRECTORY "${PROJECT_SOURCE_DIR}")
  endif()
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 300)
  endif()
  set_tests_properties(${tests} PROPERTIES SKIP_RETURN_CODE 77 LABELS "${arg_LABELS}")
  if(arg_COST)
    set_tests_properties(${tests} PROPERTIES COST ${arg_COST})
  endif()
  # Targets tests_unit and tests_cli: what the tests of these labels run, which are all that is sanitized often.
  foreach(label IN ITEMS unit cli)
    if(label IN_LIST arg_LABELS)
      add_dependencies(tests_${label} ${target})
    endif()
  endforeach()
  spp_test_timeout(${arg_TIMEOUT} ${tests})
endfunction()
