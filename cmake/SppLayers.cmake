# The direction of dependence: what each folder may link and include. Read by spp_library at configure
# time and by tests/architecture at test time.
#
#   base <- schedule <- machine <- sim       <- step <- planner <- regress <- cli <- python (left knows nothing of right)
#           schedule <- transformer <- parallel <- step
#           schedule <- samples <- runtime                         <- cli
#           machine, samples    <- calibrate                       <- cli
#   base <- report                                                 <- cli
#
# What executes schedules, sim and runtime, never sees each other; what was measured reaches sim as a
# file, by way of samples, calibrate and machine.
#
# In this order; a folder may name only folders that stand above it, so there can be no cycle.
set(SPP_LAYERS base report schedule transformer parallel machine sim step planner regress samples calibrate runtime cli python)
set(SPP_MAY_USE_base "")
set(SPP_MAY_USE_report base)
set(SPP_MAY_USE_schedule base)
set(SPP_MAY_USE_transformer base schedule)
set(SPP_MAY_USE_parallel base schedule transformer)
set(SPP_MAY_USE_machine base schedule)
set(SPP_MAY_USE_sim base schedule machine)
set(SPP_MAY_USE_step base schedule transformer parallel machine sim)
set(SPP_MAY_USE_planner base schedule transformer parallel machine sim step)
set(SPP_MAY_USE_regress base schedule transformer parallel machine sim step planner)
set(SPP_MAY_USE_samples base schedule)
set(SPP_MAY_USE_calibrate base schedule machine samples)
set(SPP_MAY_USE_runtime base schedule samples)
set(SPP_MAY_USE_cli base report schedule transformer parallel machine sim step planner regress samples calibrate runtime)
set(SPP_MAY_USE_python base cli)

# Subfolders of large rooms have a direction, too, in the same way; "." are a room's own files.
set(SPP_FOLDERS_report . kinds)
set(SPP_MAY_USE_report/. "")
set(SPP_MAY_USE_report/kinds .)
set(SPP_FOLDERS_parallel attention pipeline layer)
set(SPP_MAY_USE_parallel/attention "")
set(SPP_MAY_USE_parallel/pipeline "")
set(SPP_MAY_USE_parallel/layer attention pipeline)
set(SPP_FOLDERS_machine . import)
set(SPP_MAY_USE_machine/. "")
set(SPP_MAY_USE_machine/import .)
set(SPP_FOLDERS_runtime kernels comm . device calibrate trial)
set(SPP_MAY_USE_runtime/kernels "")
set(SPP_MAY_USE_runtime/comm kernels)
set(SPP_MAY_USE_runtime/. kernels comm)
set(SPP_MAY_USE_runtime/device kernels comm .)
set(SPP_MAY_USE_runtime/calibrate kernels comm .)
set(SPP_MAY_USE_runtime/trial kernels comm . calibrate)
set(SPP_FOLDERS_planner . export)
set(SPP_MAY_USE_planner/. "")
set(SPP_MAY_USE_planner/export .)
set(SPP_FOLDERS_cli . commands)
set(SPP_MAY_USE_cli/. "")
set(SPP_MAY_USE_cli/commands .)

set(spp_seen "")
foreach(layer IN LISTS SPP_LAYERS)
  foreach(used IN LISTS SPP_MAY_USE_${layer})
    if(NOT used IN_LIST spp_seen)
      message(FATAL_ERROR "cmake/SppLayers.cmake: ${layer} may not use ${used}, which does not stand above it")
    endif()
  endforeach()
  list(APPEND spp_seen ${layer})
  set(spp_seen_folders "")
  foreach(folder IN LISTS SPP_FOLDERS_${layer})
    foreach(used IN LISTS SPP_MAY_USE_${layer}/${folder})
      if(NOT used IN_LIST spp_seen_folders)
        message(FATAL_ERROR "cmake/SppLayers.cmake: ${layer}/${folder} may not use ${used}, which does not stand above it")
      endif()
    endforeach()
    list(APPEND spp_seen_folders ${folder})
  endforeach()
endforeach()
unset(spp_seen)
unset(spp_seen_folders)
