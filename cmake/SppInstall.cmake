# Install tree: lib/, include/sp-plan/<folder>/…, share/sp-plan/{topologies,models}, bin/sp-plan, and
# the package that find_package(sp-plan) reads (tried by tests/install). Two components: `program` is what
# runs, `development` what others compile against; cpack packs the first (SppPackage.cmake).
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
    ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}" COMPONENT development
    LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}" COMPONENT program
    FILE_SET HEADERS DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/sp-plan" COMPONENT development)
endforeach()
install(EXPORT sp-plan-targets NAMESPACE spp:: DESTINATION "${CMAKE_INSTALL_LIBDIR}/cmake/sp-plan"
  COMPONENT development)

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
  DESTINATION "${CMAKE_INSTALL_LIBDIR}/cmake/sp-plan" COMPONENT development)

if(TARGET sp-plan)
  spp_search_paths(sp-plan)
  install(TARGETS sp-plan RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}" COMPONENT program)
endif()
if(TARGET spp_python)  # below lib/ of the prefix; in the build tree beside it
  spp_search_paths(spp_python)
  set_target_properties(spp_python PROPERTIES INSTALL_RPATH "$ORIGIN/../../..;$ORIGIN/../../${CMAKE_INSTALL_LIBDIR}")
endif()
foreach(data IN ITEMS topologies models reports/corpus)
  if(IS_DIRECTORY "${PROJECT_SOURCE_DIR}/${data}")
    cmake_path(GET data PARENT_PATH parent)
    install(DIRECTORY "${PROJECT_SOURCE_DIR}/${data}"
      DESTINATION "${CMAKE_INSTALL_DATADIR}/sp-plan/${parent}" COMPONENT program FILES_MATCHING PATTERN "*.json")
  endif()
endforeach()
install(FILES "${PROJECT_SOURCE_DIR}/LICENSE" DESTINATION "${CMAKE_INSTALL_DOCDIR}" COMPONENT program RENAME copyright)
install(FILES "${PROJECT_SOURCE_DIR}/CHANGELOG.md" DESTINATION "${CMAKE_INSTALL_DOCDIR}" COMPONENT program)
