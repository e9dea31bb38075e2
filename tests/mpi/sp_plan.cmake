# cmake -DPROGRAM=<mpi.program> -DSP_PLAN=<sp-plan> -DMPIEXEC=<mpirun> [-DSLOW_NETWORK=<scripts/slow-network>]
#       -DRANKS=4 "-DARGS=--ulysses 2 …" [-DEXPECT=<regex of the complaint>] -DPATIENCE=1 -P sp_plan.cmake
#
# Runs `sp-plan run ARGS` on RANKS ranks: of this machine, or of two emulated nodes. It must end with 0 and
# print one JSON document, in which everything is right; with EXPECT it must end with 2, print nothing,
# and complain of that: rank 0, and others that the launcher has not ended by then.
cmake_minimum_required(VERSION 3.25)
include("${CMAKE_CURRENT_LIST_DIR}/launch.cmake")
skip_without_mpi("${PROGRAM}")
mpi_flags(flags)
patient(limit 240)

if(DEFINED SLOW_NETWORK)
  math(EXPR per_node "${RANKS} / 2")
  set(launcher "${SLOW_NETWORK}" --nodes 2 --ranks-per-node ${per_node} --rate 1gbit --)
else()
  set(launcher "${MPIEXEC}" ${flags} -np ${RANKS})
endif()
separate_arguments(arguments UNIX_COMMAND "${ARGS}")
execute_process(COMMAND ${launcher} "${SP_PLAN}" run ${arguments}
  OUTPUT_VARIABLE output ERROR_VARIABLE errors RESULT_VARIABLE code TIMEOUT ${limit})
set(tale "\n${output}\n${errors}")
if(DEFINED SLOW_NETWORK AND code EQUAL 77)
  message(STATUS "${errors}")  # "skipped: …"
  return()
endif()

if(DEFINED EXPECT)
  string(REPLACE ";" "," lines "${errors}")  # which would end a member of a list
  string(REGEX MATCHALL "sp-plan: [^\n]*" complaints "${lines}")
  list(FILTER complaints EXCLUDE REGEX "^sp-plan: warning: ")
  list(LENGTH complaints count)
  list(FILTER complaints EXCLUDE REGEX "${EXPECT}")
  if(NOT code EQUAL 2)
    message(FATAL_ERROR "ended with ${code}, not 2${tale}")
  elseif(NOT output STREQUAL "")
    message(FATAL_ERROR "something was printed${tale}")
  elseif(count EQUAL 0 OR complaints)
    message(FATAL_ERROR "${count} complaints, not all match '${EXPECT}'${tale}")
  endif()
  return()
endif()

if(NOT code EQUAL 0)
  message(FATAL_ERROR "ended with ${code}${tale}")
endif()
string(REGEX MATCHALL "\"format\": " documents "${output}")
list(LENGTH documents count)
if(NOT count EQUAL 1 OR NOT output MATCHES "^{.*}\n$")
  message(FATAL_ERROR "stdout is not one JSON document${tale}")
endif()
function(expect value)  # KEYS…
  string(JSON found GET "${output}" ${ARGN})
  if(NOT found STREQUAL value)
    message(FATAL_ERROR "${ARGN} is '${found}', not '${value}'${tale}")
  endif()
endfunction()
expect(sp-plan/run format)
expect(mpi backend comm)
expect(${RANKS} backend ranks)
expect(ON passed)
if(ARGS MATCHES "--scope step")
  expect(ON phases step check passed)
else()
  expect(ON phases fwd check passed)
  if(NOT ARGS MATCHES "--phase fwd")
    expect(ON phases bwd check passed)
  endif()
endif()
