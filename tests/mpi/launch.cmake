# What the scripts here share: how to start ranks, and when not to, and for how long. MPIEXEC is mpirun, or
# empty; PATIENCE, how much longer than in an optimised build things may take (cmake/SppTest.cmake).

# patient(limit 20): seconds in an optimised build -> seconds here.
function(patient result seconds)
  math(EXPR seconds "${seconds} * ${PATIENCE}")
  set(${result} ${seconds} PARENT_SCOPE)
endfunction()

# Ends the script with "skipped: …", which ctest looks for, if `program` (mpi.program) cannot use MPI.
macro(skip_without_mpi program)
  execute_process(COMMAND "${program}" why_not OUTPUT_VARIABLE why_not RESULT_VARIABLE code)
  if(NOT code EQUAL 0)
    message(FATAL_ERROR "${program} why_not ended with ${code}")
  elseif(NOT why_not STREQUAL "")
    message(STATUS "skipped: ${why_not}")
    return()
  elseif(NOT MPIEXEC)
    message(STATUS "skipped: there is no mpirun")
    return()
  endif()
endmacro()

# Open MPI counts slots, binds ranks to cores, spins when idle and refuses root: none of it is for more
# ranks than cores, or for a container. MPICH does none of it.
function(mpi_flags result)
  execute_process(COMMAND "${MPIEXEC}" --version OUTPUT_VARIABLE version ERROR_QUIET)
  set(${result} "" PARENT_SCOPE)
  if(version MATCHES "Open MPI|OpenRTE|open-mpi")
    set(${result} --allow-run-as-root --oversubscribe --bind-to none PARENT_SCOPE)
    set(ENV{OMPI_MCA_mpi_yield_when_idle} 1)
  endif()
  # The libraries keep memory until the end, and are not compiled for the sanitizers.
  set(ENV{ASAN_OPTIONS} "detect_leaks=0")
  set(ENV{TSAN_OPTIONS} "ignore_noninstrumented_modules=1:report_bugs=0")
endfunction()
