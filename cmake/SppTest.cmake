# spp_test(NAME unit.base SOURCES parse_test.cpp … DEPENDS base … [LABELS unit …] [TIMEOUT seconds]
#          [ARGS …] [LINK …])
#
# One Catch2 executable and one ctest entry of the same name for a folder of tests. Run it alone for
# Catch2's own choice of tests: build/ci/tests/unit.base "parse*". Its working directory is the root
# of the sources. A test that must be skipped calls spp::test::skip("why") (tests/support/catch.hpp).
# Without Catch2 the program is built all the same, and BUILD_TESTING is off from here on.
find_package(Catch2 QUIET)
if(NOT Catch2_FOUND OR Catch2_VERSION VERSION_LESS 2.13)
  spp_summary("tests" "off: Catch2 2.13 or newer was not found (catch2)")
  set(BUILD_TESTING OFF)
  return()
endif()
spp_summary("Catch2" "${Catch2_VERSION}")

function(spp_test)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "NAME;TIMEOUT" "SOURCES;DEPENDS;LABELS;ARGS;LINK")
  spp_no_leftovers(spp_test "${arg_UNPARSED_ARGUMENTS}")
  string(REPLACE "." "_" target "test_${arg_NAME}")
  add_executable(${target} ${arg_SOURCES})
  set_target_properties(${target} PROPERTIES OUTPUT_NAME "${arg_NAME}"
    RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/tests")
  list(TRANSFORM arg_DEPENDS PREPEND "spp::")
  target_link_libraries(${target} PRIVATE spp_test_support ${arg_DEPENDS} ${arg_LINK})
  spp_warnings(${target})

  add_test(NAME ${arg_NAME} COMMAND ${target} ${arg_ARGS} WORKING_DIRECTORY "${PROJECT_SOURCE_DIR}")
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 300)
  endif()
  set_tests_properties(${arg_NAME} PROPERTIES TIMEOUT ${arg_TIMEOUT} SKIP_RETURN_CODE 77
    LABELS "${arg_LABELS}")
endfunction()
