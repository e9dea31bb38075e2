# cmake -DPROGRAM=<mpi.program> -DMPIEXEC=<mpirun> -DSLOW_NETWORK=<scripts/slow-network> -DRATE=200mbit
#       -DPATIENCE=1 -P slow_network.cmake
#
# The network is as slow as it says: a message from node to node is not faster than RATE, plus a tenth for the
# token bucket's first breath. How much slower it is depends on the machine, and is not judged. Then a run is
# stopped by SIGTERM. No namespace is left.
cmake_minimum_required(VERSION 3.25)
include("${CMAKE_CURRENT_LIST_DIR}/launch.cmake")
skip_without_mpi("${PROGRAM}")
mpi_flags(flags)
patient(a_minute 60)

execute_process(COMMAND "${SLOW_NETWORK}" --nodes 2 --ranks-per-node 1 --rate ${RATE} -- "${PROGRAM}" transfer 2
  OUTPUT_VARIABLE output ERROR_VARIABLE errors RESULT_VARIABLE code TIMEOUT ${a_minute})
if(code EQUAL 77)
  message(STATUS "${errors}")  # "skipped: …"
  return()
elseif(NOT code EQUAL 0 OR NOT output MATCHES "bits per second: ([0-9]+)")
  message(FATAL_ERROR "ended with ${code}\n${output}\n${errors}")
endif()
set(measured ${CMAKE_MATCH_1})
string(REGEX REPLACE "mbit$" "" megabits "${RATE}")
math(EXPR limit "${megabits} * 1100000")
message(STATUS "${measured} bit/s over a link of ${RATE}")
if(measured GREATER limit)
  message(FATAL_ERROR "that is faster than the link")
endif()

# Every node has cores of its own where there are enough.
execute_process(COMMAND "${SLOW_NETWORK}" --nodes 2 --ranks-per-node 1 -- grep Cpus_allowed_list /proc/self/status
  OUTPUT_VARIABLE output RESULT_VARIABLE code TIMEOUT ${a_minute})
string(REGEX MATCHALL "list:[^\n]*" lists "${output}")
list(LENGTH lists ranks)
list(REMOVE_DUPLICATES lists)
list(LENGTH lists distinct)
execute_process(COMMAND nproc OUTPUT_VARIABLE cores OUTPUT_STRIP_TRAILING_WHITESPACE)  # that this process may use
if(NOT code EQUAL 0 OR NOT ranks EQUAL 2 OR (cores GREATER 1 AND NOT distinct EQUAL 2))
  message(FATAL_ERROR "ended with ${code}; cores of two nodes:\n${output}")
endif()

# Of more nodes than cores equally many keep to each.
math(EXPR nodes "2 * ${cores}")
if(nodes LESS_EQUAL 16)
  execute_process(COMMAND "${SLOW_NETWORK}" --nodes ${nodes} --ranks-per-node 1 -- grep Cpus_allowed_list /proc/self/status
    OUTPUT_VARIABLE output RESULT_VARIABLE code TIMEOUT ${a_minute})
  string(REGEX MATCHALL "list:[^\n]*" lists "${output}")
  list(REMOVE_DUPLICATES lists)
  list(LENGTH lists distinct)
  if(NOT code EQUAL 0 OR NOT distinct EQUAL cores)
    message(FATAL_ERROR "ended with ${code}; cores of ${nodes} nodes:\n${output}")
  endif()
endif()

execute_process(COMMAND "${SLOW_NETWORK}" --nodes 3 --ranks-per-node 1 -- sh -c "exit 5"
  RESULT_VARIABLE code OUTPUT_QUIET ERROR_QUIET TIMEOUT ${a_minute})
if(NOT code EQUAL 5)
  message(FATAL_ERROR "a command that ends with 5 ended with ${code}")
endif()
execute_process(COMMAND timeout --signal TERM --kill-after 20 --preserve-status 3
  "${SLOW_NETWORK}" -- sleep 60 RESULT_VARIABLE code OUTPUT_QUIET ERROR_QUIET TIMEOUT ${a_minute})
if(NOT code EQUAL 143)
  message(FATAL_ERROR "stopped by SIGTERM, it ended with ${code}")
endif()

# Namespaces are called after the script's process; those of other runs may be there.
execute_process(COMMAND ip netns list OUTPUT_VARIABLE namespaces)
string(REGEX MATCHALL "spp-[0-9]+" runs "${namespaces}")
foreach(run IN LISTS runs)
  string(REPLACE "spp-" "" pid "${run}")
  if(NOT EXISTS "/proc/${pid}")
    message(FATAL_ERROR "namespaces are left:\n${namespaces}")
  endif()
endforeach()
