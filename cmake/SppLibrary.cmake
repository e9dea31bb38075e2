# spp_library(NAME base SOURCES units.hpp parse.hpp parse.cpp … [DEPENDS schedule …] [LINK fmt::fmt …]
#             [LINK_PRIVATE Eigen3::Eigen …] [SPENDS_NO_TIME])
#
# The library of one folder: target spp_<name>, alias spp::<name>. Headers among SOURCES are installed
# and checked to compile alone. DEPENDS names folders, and only those that SppLayers.cmake allows;
# LINK names other packages' targets. SPENDS_NO_TIME: it reads and writes, others calculate; so it is optimised little
# (-O1), also in Release, which takes two thirds of the time to compile. Static, or shared with -DBUILD_SHARED_LIBS=ON: then the linker
# refuses undefined symbols, which finds calls against the direction of dependence.
function(spp_library)
  cmake_parse_arguments(PARSE_ARGV 0 arg "SPENDS_NO_TIME" "NAME" "SOURCES;DEPENDS;LINK;LINK_PRIVATE")
  spp_no_leftovers(spp_library "${arg_UNPARSED_ARGUMENTS}")
  if(NOT arg_NAME IN_LIST SPP_LAYERS)
    list(JOIN SPP_LAYERS ", " known)
    message(FATAL_ERROR "spp_library: '${arg_NAME}' is no folder of the house (${known}); see cmake/SppLayers.cmake")
  endif()
  foreach(used IN LISTS arg_DEPENDS)
    if(NOT used IN_LIST SPP_MAY_USE_${arg_NAME})
      list(JOIN SPP_MAY_USE_${arg_NAME} ", " allowed)
      message(FATAL_ERROR "spp_library: ${arg_NAME} may not depend on ${used} (allowed: ${allowed}); see cmake/SppLayers.cmake")
    endif()
  endforeach()

  set(headers ${arg_SOURCES})
  list(FILTER headers INCLUDE REGEX "\\.hpp$")
  list(FILTER arg_SOURCES EXCLUDE REGEX "\\.hpp$")

  set(target spp_${arg_NAME})
  add_library(${target} ${arg_SOURCES})
  add_library(spp::${arg_NAME} ALIAS ${target})
  target_sources(${target} PUBLIC FILE_SET HEADERS
    BASE_DIRS "${PROJECT_SOURCE_DIR}" FILES ${headers})
  target_compile_features(${target} PUBLIC cxx_std_20)
  list(TRANSFORM arg_DEPENDS PREPEND "spp::")
  target_link_libraries(${target} PUBLIC ${arg_DEPENDS} ${arg_LINK} PRIVATE ${arg_LINK_PRIVATE})
  set_target_properties(${target} PROPERTIES EXPORT_NAME ${arg_NAME} POSITION_INDEPENDENT_CODE ON)
  spp_warnings(${target})
  spp_precompiled(${target})
  if(arg_SPENDS_NO_TIME)
    target_compile_options(${target} PRIVATE $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CONFIG:Release>>:-O1>)
  endif()
  if(BUILD_SHARED_LIBS AND NOT SPP_SANITIZE AND NOT APPLE)
    target_link_options(${target} PRIVATE -Wl,--no-undefined)
  endif()
  set_property(GLOBAL APPEND PROPERTY SPP_BUILT_LAYERS ${arg_NAME})
endfunction()

# spp_program(NAME sp-plan SOURCES main.cpp DEPENDS cli [LINK …]): an executable of ours.
function(spp_program)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "NAME" "SOURCES;DEPENDS;LINK")
  spp_no_leftovers(spp_program "${arg_UNPARSED_ARGUMENTS}")
  add_executable(${arg_NAME} ${arg_SOURCES})
  list(TRANSFORM arg_DEPENDS PREPEND "spp::")
  target_link_libraries(${arg_NAME} PRIVATE ${arg_DEPENDS} ${arg_LINK})
  target_include_directories(${arg_NAME} PRIVATE "${PROJECT_SOURCE_DIR}")
  spp_warnings(${arg_NAME})
  spp_precompiled(${arg_NAME})
endfunction()

# spp_alone(file…): source files of this folder that are compiled alone (SPP_UNITY in SppBuild.cmake).
function(spp_alone)
  set_property(SOURCE ${ARGN} PROPERTY SKIP_UNITY_BUILD_INCLUSION ON)
endfunction()

function(spp_no_leftovers function leftovers)
  if(NOT leftovers STREQUAL "")
    message(FATAL_ERROR "${function}: what is '${leftovers}'?")
  endif()
endfunction()
