# `cpack` in a build folder (scripts/package): sp-plan_<version>_<architecture>.deb with the component
# `program`: the program, man page, completions, data, the Python package. What it links stands in its
# dependencies (dpkg-shlibdeps); what it works without, and loads or starts when asked to, is recommended
# or suggested. Tried by tests/install.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME sp-plan)
set(CPACK_PACKAGE_VENDOR "sp-plan")
set(CPACK_PACKAGE_CONTACT "sp-plan <sp-plan@localhost>" CACHE STRING "Maintainer of the package: Name <address>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "${PROJECT_DESCRIPTION}")
set(CPACK_DEBIAN_PROGRAM_DESCRIPTION "For a model, a sequence length and a cluster of GPUs, sp-plan recommends how to split attention and
the training step (tensor, sequence, pipeline, data and expert degrees), proves that the schedule is right, and says what
a step will cost in time and memory. No GPU is needed to plan.")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)

set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_COMPONENTS_ALL program)
set(CPACK_DEBIAN_PROGRAM_PACKAGE_NAME sp-plan)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)

set(recommended "")
get_target_property(linked spp_runtime LINK_LIBRARIES)
if("MPI::MPI_CXX" IN_LIST linked)
  if("${MPI_mpi_LIBRARY}" MATCHES "openmpi")
    list(APPEND recommended openmpi-bin)  # mpirun
  else()
    list(APPEND recommended mpich)
  endif()
endif()
if(SPP_HAS_PYTHON)
  get_property(version TARGET spp_python PROPERTY SPP_PYTHON_VERSION)
  string(REGEX MATCH "^([0-9]+)\\.([0-9]+)$" version "${version}")
  math(EXPR next "${CMAKE_MATCH_2} + 1")
  list(APPEND recommended "python3 (>= ${version})" "python3 (<< ${CMAKE_MATCH_1}.${next})")
endif()
list(JOIN recommended ", " CPACK_DEBIAN_PACKAGE_RECOMMENDS)
if(SPP_HAS_CUDA)
  set(CPACK_DEBIAN_PACKAGE_SUGGESTS "libcuda1, libnccl2, libcudnn9-cuda-12 | libcudnn9-cuda-13")
endif()
include(CPack)

# What the package holds, built.
add_custom_target(packed DEPENDS sp-plan-pages)
if(SPP_HAS_PYTHON)
  add_dependencies(packed sp_plan_package)
endif()
