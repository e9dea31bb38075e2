# Install tree: lib/, include/sp-plan/<folder>/…, share/sp-plan/{topologies,models}, bin/sp-plan, and
# the package that find_package(sp-plan) reads (tried by tests/install).
include(CMakePackageConfigHelpers)

# What is installed finds our shared libraries beside itself, others' where they were linked. It does so
# in the build tree, too: CMake would pad a search path that it means to replace at installation with
# an empty entry, which stands for the current folder (tests/install/search_paths.cmake).
function(spp_search_paths target)
  set_target_properties(${target} PROPERTIES BUILD_WITH_INSTALL_RPATH ON INSTALL_RPATH_USE_LINK_PATH ON
    INSTALL_RPATH "$ORIGIN;$ORIGIN/../${CMAKE_INSTALL_LIBDIR}")
endfunction()

get_property(layers GLOBAL PROPERTY SPP_BUILT_LAYERS)
foreach(layer IN LISTS layers)
  spp_search_paths(spp_${layer})
  install(TARGETS spp_${layer} EXPORT sp-plan-targets
    ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}" LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}"
    FILE_SET HEADERS DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/sp-plan")
endforeach()
install(EXPORT sp-plan-targets NAMESPACE spp:: DESTINATION "${CMAKE_INSTALL_LIBDIR}/cmake/sp-plan")

set(SPP_FIND_MPI "")
get_target_property(linked spp_runtime LINK_LIBRARIES)
if("MPI::MPI_CXX" IN_LIST linked)
  set(SPP_FIND_MPI "find_dependency(MPI COMPONENTS CXX)")
endif()
configure_package_config_file("${CMAKE_CURRENT_LIST_DIR}/sp-plan-config.cmake.in"
  "${PROJECT_BINARY_DIR}/sp-plan-config.cmake" INSTALL_DESTINATION "${CMAKE_INSTALL_LIBDIR}/cmake/sp-plan"
  PATH_VARS CMAKE_INSTALL_DATADIR)
write_basic_package_version_file("${PROJECT_BINARY_DIR}/sp-plan-config-version.cmake"
  COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/sp-plan-config.cmake" "${PROJECT_BINARY_DIR}/sp-plan-config-version.cmake"
  DESTINATION "${CMAKE_INSTALL_LIBDIR}/cmake/sp-plan")

if(TARGET sp-plan)
  spp_search_paths(sp-plan)
  install(TARGETS sp-plan RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}")
endif()
foreach(data IN ITEMS topologies models reports/corpus)
  if(IS_DIRECTORY "${PROJECT_SOURCE_DIR}/${data}")
    cmake_path(GET data PARENT_PATH parent)
    install(DIRECTORY "${PROJECT_SOURCE_DIR}/${data}"
      DESTINATION "${CMAKE_INSTALL_DATADIR}/sp-plan/${parent}" FILES_MATCHING PATTERN "*.json")
  endif()
endforeach()
