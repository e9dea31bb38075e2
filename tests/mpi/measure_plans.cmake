# cmake -DPROGRAM=<mpi.program> -DSP_PLAN=<sp-plan> -DMPIEXEC=<mpirun> -DSLOW_NETWORK=<scripts/slow-network>
#       -DMEASURE_PLANS=<scripts/measure-plans> -DOUT=<folder> -DPATIENCE=1 -P measure_plans.cmake
#
# Emulated nodes are calibrated, the plans of a small call that are predicted best run on them, and the report is of those data:
# written again, it is the same. How right predictions are is not judged: `reports/measured/` has that.
cmake_minimum_required(VERSION 3.25)
include("${CMAKE_CURRENT_LIST_DIR}/launch.cmake")
skip_without_mpi("${PROGRAM}")
mpi_flags(flags)  # for its environment
patient(a_minute 60)
patient(limit 560)

execute_process(COMMAND "${SLOW_NETWORK}" --nodes 2 --ranks-per-node 1 -- true
  OUTPUT_QUIET ERROR_VARIABLE errors RESULT_VARIABLE code TIMEOUT ${a_minute})
if(code EQUAL 77)
  message(STATUS "${errors}")  # "skipped: …"
  return()
endif()

file(REMOVE_RECURSE "${OUT}")
execute_process(COMMAND "${MEASURE_PLANS}" --sp-plan "${SP_PLAN}" --out "${OUT}" --nodes 2 --ranks-per-node 2
    --rate 1gbit --heads 4 --head-dim 32 --seq 256 --plans 5 --budget 5 --iters 1 --rounds 1 --most-rounds 1 --near-rounds 1
  OUTPUT_VARIABLE output ERROR_VARIABLE errors RESULT_VARIABLE code TIMEOUT ${limit})
if(NOT code EQUAL 0)
  message(FATAL_ERROR "ended with ${code}\n${output}\n${errors}")
endif()
file(READ "${OUT}/plans.json" data)
string(JSON legal GET "${data}" legal_plans)
string(JSON recommended GET "${data}" recommended)
string(JSON count LENGTH "${data}" plans)
if(NOT count EQUAL 5 OR NOT legal GREATER count)
  message(FATAL_ERROR "${count} plans of ${legal} legal ones")
endif()
set(names "")
math(EXPR last "${count} - 1")
foreach(i RANGE ${last})
  string(JSON name GET "${data}" plans ${i} name)
  string(JSON failed ERROR_VARIABLE ran GET "${data}" plans ${i} failed)
  if(ran STREQUAL "NOTFOUND")
    message(FATAL_ERROR "${name} failed: ${failed}")
  endif()
  string(JSON measured GET "${data}" plans ${i} measured_s)
  string(JSON predicted GET "${data}" plans ${i} predicted_s)
  if(NOT measured GREATER 0 OR NOT predicted GREATER 0)
    message(FATAL_ERROR "${name}: measured ${measured} s, predicted ${predicted} s")
  endif()
  list(APPEND names "${name}")
endforeach()
if(NOT recommended IN_LIST names)
  message(FATAL_ERROR "${recommended} is recommended, but did not run")
endif()
file(READ "${OUT}/README.md" report)
if(NOT report MATCHES "${count} of ${legal} legal plans ran" OR NOT report MATCHES "recommended plan's regret")
  message(FATAL_ERROR "the report lacks something\n${report}")
endif()
execute_process(COMMAND "${MEASURE_PLANS}" --report --out "${OUT}" RESULT_VARIABLE code OUTPUT_QUIET ERROR_QUIET)
file(READ "${OUT}/README.md" again)
if(NOT code EQUAL 0 OR NOT again STREQUAL report)
  message(FATAL_ERROR "--report ended with ${code}, or wrote something else")
endif()
message(STATUS "${count} plans")
