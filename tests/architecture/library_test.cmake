# cmake -DROOT=… -DWORK=… -P library_test.cmake
#
# spp_library and spp_registry refuse what the house forbids, with a message that says so.
cmake_minimum_required(VERSION 3.25)

function(expect_refusal expected call)
  file(REMOVE_RECURSE "${WORK}")
  file(WRITE "${WORK}/CMakeLists.txt" "cmake_minimum_required(VERSION 3.25)
project(refused LANGUAGES NONE)
foreach(module SppLayers SppLibrary SppRegistry)
  include(\"${ROOT}/cmake/\${module}.cmake\")
endforeach()
${call}
")
  execute_process(COMMAND "${CMAKE_COMMAND}" -S "${WORK}" -B "${WORK}/build"
    RESULT_VARIABLE failed ERROR_VARIABLE complaint OUTPUT_QUIET)
  string(REGEX REPLACE "[ \n]+" " " complaint "${complaint}")
  if(NOT failed OR NOT complaint MATCHES "${expected}")
    message(FATAL_ERROR "${call}\nwas not refused with '${expected}' but:\n${complaint}")
  endif()
endfunction()

expect_refusal("sim may not depend on cli" "spp_library(NAME sim SOURCES a.cpp DEPENDS base cli)")
expect_refusal("sim may not depend on runtime" "spp_library(NAME sim SOURCES a.cpp DEPENDS runtime)")
expect_refusal("base may not depend on base" "spp_library(NAME base SOURCES a.cpp DEPENDS base)")
expect_refusal("'utils' is no folder of the house" "spp_library(NAME utils SOURCES a.cpp)")
expect_refusal("what is 'SOURCE'" "spp_library(SOURCE NAME sim)")
expect_refusal("'ring' stands there twice"
  "spp_registry(TARGET t NAME n NAMESPACE spp::n TYPE T HEADER \"h.hpp\" ENTRIES ring zigzag ring)")
expect_refusal("'all-gather' is not a snake_case name"
  "spp_registry(TARGET t NAME n NAMESPACE spp::n TYPE T HEADER \"h.hpp\" ENTRIES all-gather)")
