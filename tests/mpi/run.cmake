# cmake -DPROGRAM=<mpi.program> -DMPIEXEC=<mpirun> -DWHAT=<checks|throw|…> -DRANKS=4 -DPATIENCE=1 [-DPLAN_RANKS=8]
#       [-DEXPECT=<regex of the one message>] -P run.cmake
#
# Runs the program under mpirun. Without EXPECT it must end with 0. With EXPECT it must fail within
# 20 s (times PATIENCE), tell exactly one line that matches, and leave no process behind.
cmake_minimum_required(VERSION 3.25)

include("${CMAKE_CURRENT_LIST_DIR}/launch.cmake")
skip_without_mpi("${PROGRAM}")
mpi_flags(flags)

if(NOT DEFINED PLAN_RANKS)
  set(PLAN_RANKS ${RANKS})
endif()
if(DEFINED EXPECT)
  patient(limit 20)
else()
  patient(limit 240)
endif()
execute_process(
  COMMAND "${MPIEXEC}" ${flags} -np ${RANKS} "${PROGRAM}" ${WHAT} ${PLAN_RANKS}
  OUTPUT_VARIABLE output ERROR_VARIABLE errors RESULT_VARIABLE code TIMEOUT ${limit})

if(NOT DEFINED EXPECT)
  if(NOT code EQUAL 0)
    message(FATAL_ERROR "${WHAT} ended with ${code}\n${output}\n${errors}")
  endif()
  message(STATUS "${output}")
  return()
endif()

set(tale "\n${output}\n${errors}")
if(code STREQUAL "0")
  message(FATAL_ERROR "${WHAT} ended with 0${tale}")
elseif(NOT code MATCHES "^[0-9]+$")  # "Process terminated due to timeout"
  message(FATAL_ERROR "${WHAT}: ${code}${tale}")
endif()
string(REGEX MATCHALL "${EXPECT}" matches "${tale}")  # MPICH's mpiexec tells on stdout
list(LENGTH matches count)
if(NOT count EQUAL 1)
  message(FATAL_ERROR "${WHAT}: ${count} lines match '${EXPECT}', not one${tale}")
endif()

string(REGEX MATCHALL "pid [0-9]+" pids "${output}")
list(LENGTH pids count)
if(NOT count EQUAL RANKS)
  message(FATAL_ERROR "${WHAT}: ${count} of ${RANKS} ranks told their pid${tale}")
endif()
# mpirun may end a moment before the last of its children; a zombie (Z) has ended, but its new parent
# has not asked.
function(is_alive pid result)
  set(${result} FALSE PARENT_SCOPE)
  if(EXISTS "/proc/${pid}/stat")
    execute_process(COMMAND "${CMAKE_COMMAND}" -E cat "/proc/${pid}/stat" OUTPUT_VARIABLE stat ERROR_QUIET)
    if(NOT stat STREQUAL "" AND NOT stat MATCHES "\\) Z ")
      set(${result} TRUE PARENT_SCOPE)
    endif()
  endif()
endfunction()
foreach(pid IN LISTS pids)
  string(REPLACE "pid " "" pid "${pid}")
  foreach(second RANGE 5)
    is_alive(${pid} alive)
    if(NOT alive)
      break()
    endif()
    execute_process(COMMAND "${CMAKE_COMMAND}" -E sleep 1)
  endforeach()
  if(alive)
    message(FATAL_ERROR "${WHAT}: process ${pid} is still there${tale}")
  endif()
endforeach()
