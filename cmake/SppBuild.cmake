# How everything of ours is compiled: standard, warnings, sanitizers, ccache; and the configure summary.

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Debug, RelWithDebInfo or Release" FORCE)
endif()

include(GNUInstallDirs)

option(SPP_WERROR "Warnings are errors" OFF)
set(SPP_SANITIZE "" CACHE STRING "Sanitizers for everything, as -fsanitize takes them: address,undefined or thread")

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/${CMAKE_INSTALL_LIBDIR}")
set(CMAKE_VERIFY_INTERFACE_HEADER_SETS ON)  # target all_verify_interface_header_sets: headers alone

# Headers and templates (JSON above all) cost more than the code that uses them. So those that nearly
# every file includes are parsed once for all targets of a kind (spp_precompiled), and the files of a
# target are compiled sixteen at a time, which takes little more than a third of the time. Files whose local names meet those
# of their neighbours are compiled alone (spp_alone); so are entries of those registries whose local
# names are alike (SppRegistry.cmake). Switch it off to work on a few files, and for tools that read
# compile_commands.json (scripts/lint).
option(SPP_UNITY "Compile the files of a target several at a time" ON)
set(CMAKE_UNITY_BUILD ${SPP_UNITY})
set(CMAKE_UNITY_BUILD_BATCH_SIZE 16)
option(SPP_PRECOMPILED "Parse the headers of other packages once" ON)

# g++ looks for garbage from 128 MB on, which what is precompiled nearly fills: again and again, an eighth of its time.
# (Not for clang-tidy, which complains of g++'s options.)
if(SPP_PRECOMPILED)
  add_compile_options($<$<COMPILE_LANG_AND_ID:CXX,GNU>:--param=ggc-min-heapsize=524288>)
endif()

find_program(SPP_CCACHE ccache)
if(SPP_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER "${SPP_CCACHE}")
endif()

if(SPP_SANITIZE)
  # Left out, for a quarter of the time to compile: null and object-size, which AddressSanitizer sees,
  # too, and vptr (nothing is cast to a derived class here).
  set(left_out "")
  if(SPP_SANITIZE MATCHES "undefined")
    set(left_out "-fno-sanitize=null,object-size,vptr;")
  endif()
  add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${SPP_SANITIZE};${left_out}-fno-sanitize-recover=all;-fno-omit-frame-pointer>")
  add_compile_definitions(SPP_SANITIZED=1)
  add_link_options(-fsanitize=${SPP_SANITIZE})
endif()

# The warnings of the house, for code that is ours; what find_package finds is "system" and stays quiet.
function(spp_warnings target)
  # Designated initialisers leave members out on purpose: not a warning.
  target_compile_options(${target} PRIVATE
    $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wpedantic -Wconversion -Wshadow -Wnon-virtual-dtor
      -Wold-style-cast -Wno-missing-field-initializers>
    $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<BOOL:${SPP_WERROR}>>:-Werror>)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
    # g++ 12 sees overlaps in std::string's operator+ that are not there (GCC bug 105651).
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-Wno-restrict>)
  endif()
endfunction()

# spp_precompiled(target [tests]): headers of other packages that nearly every file of ours includes,
# parsed once for libraries and once for what is linked to Catch2; code must be as position-independent as they. A file
# still includes what it uses: target all_verify_interface_header_sets and scripts/lint compile without this.
function(spp_precompiled target)
  if(NOT SPP_PRECOMPILED)
    return()
  endif()
  set(kind headers)
  set(packages fmt::fmt nlohmann_json::nlohmann_json)
  set(headers <algorithm> <array> <chrono> <cmath> <cstdint> <filesystem> <functional> <limits> <map> <memory>
    <optional> <set> <span> <sstream> <string> <string_view> <utility> <variant> <vector> <fmt/format.h>
    <nlohmann/json.hpp>)
  if("tests" IN_LIST ARGN)
    set(kind test_headers)
    list(APPEND packages Catch2::Catch2)
    list(APPEND headers "${PROJECT_SOURCE_DIR}/tests/support/catch.hpp")
  endif()
  if(NOT TARGET spp_${kind})
    file(CONFIGURE OUTPUT "${PROJECT_BINARY_DIR}/${kind}.cpp" CONTENT "// Compiled for its headers alone.\n")
    add_library(spp_${kind} OBJECT "${PROJECT_BINARY_DIR}/${kind}.cpp")
    target_link_libraries(spp_${kind} PRIVATE ${packages})
    if(kind STREQUAL "headers")
      set_target_properties(spp_${kind} PROPERTIES POSITION_INDEPENDENT_CODE ON)
    else()
      target_compile_definitions(spp_${kind} PRIVATE SPP_CATCH2_VERSION=${SPP_CATCH2_VERSION})
      target_include_directories(spp_${kind} PRIVATE "${PROJECT_SOURCE_DIR}")
    endif()
    spp_warnings(spp_${kind})  # -Wpedantic defines a macro
    target_precompile_headers(spp_${kind} PRIVATE ${headers})
  endif()
  target_precompile_headers(${target} REUSE_FROM spp_${kind})
  if(kind STREQUAL "headers")
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-fPIC>)  # of a program, CMake would make it -fPIE
  endif()
endfunction()

# One line of the summary: spp_summary("fmt" "9.1.0").
function(spp_summary what value)
  string(LENGTH "${what}" length)
  math(EXPR missing "16 - ${length}")
  if(missing LESS 1)
    set(missing 1)
  endif()
  string(REPEAT " " ${missing} gap)
  set_property(GLOBAL APPEND_STRING PROPERTY SPP_SUMMARY "  ${what}${gap}${value}\n")
endfunction()

function(spp_print_summary)
  get_property(lines GLOBAL PROPERTY SPP_SUMMARY)
  get_property(layers GLOBAL PROPERTY SPP_BUILT_LAYERS)
  list(JOIN layers " " layers)
  message(STATUS "sp-plan ${PROJECT_VERSION} (${SPP_COMMIT}), ${CMAKE_BUILD_TYPE}, "
    "${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION}\n  folders         ${layers}\n${lines}")
endfunction()

if(SPP_SANITIZE)
  spp_summary("sanitizers" "${SPP_SANITIZE}")
endif()
