# cmake -DPROGRAM=<mpi.program> -DSP_PLAN=<sp-plan> -DMPIEXEC=<mpirun> "-DARGS=calibrate …" -P stopped.cmake
#
# Runs `sp-plan ARGS --timeout 2`, which would take minutes, on 3 ranks and stops rank 1 (SIGSTOP) in the middle
# of it. The others must end within a minute, and say that they waited for somebody.
cmake_minimum_required(VERSION 3.25)
include("${CMAKE_CURRENT_LIST_DIR}/launch.cmake")
skip_without_mpi("${PROGRAM}")
mpi_flags(flags)

separate_arguments(arguments UNIX_COMMAND "${ARGS}")
set(stop_one [[
if [ "${OMPI_COMM_WORLD_RANK:-$PMI_RANK}" = 1 ]; then (sleep 6; kill -STOP $$) & fi
exec "$0" "$@"]])
execute_process(COMMAND "${MPIEXEC}" ${flags} -np 3 sh -c "${stop_one}" "${SP_PLAN}" ${arguments} --timeout 2
  OUTPUT_VARIABLE output ERROR_VARIABLE errors RESULT_VARIABLE code TIMEOUT 70)
set(tale "\n${output}\n${errors}")
if(NOT code MATCHES "^[1-9][0-9]*$")  # 0, or "Process terminated due to timeout"
  message(FATAL_ERROR "ended with ${code}${tale}")
endif()
set(expected "rank [02] ended the run: [a-z_-]+ failed on rank [02]: nothing happened for [0-9.]+ s. it waits for rank")
string(REGEX MATCHALL "ended the run" complaints "${tale}")
list(LENGTH complaints count)
if(NOT count EQUAL 1 OR NOT tale MATCHES "${expected}")
  message(FATAL_ERROR "${count} complaints, not one that matches '${expected}'${tale}")
endif()
message(STATUS "${errors}")
