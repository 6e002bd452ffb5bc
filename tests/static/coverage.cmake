# SPDX-License-Identifier: MIT
# For vm/coverage, which has CMake include it after project(): adds counters to every
# build of the libraries, and to nothing else.
set(coverage_folder ${CMAKE_CURRENT_LIST_DIR})

function(count_coverage)
  # A part of each program, which may be copied to where the build can't be read.
  add_library(coverage_end STATIC ${coverage_folder}/coverage-end.c)
  set(program $<STREQUAL:$<TARGET_PROPERTY:TYPE>,EXECUTABLE>)
  foreach(lib switchto switchto_delays switchto_door switchto_sched switchto_sched_windows)
    if(TARGET ${lib})
      # Threads count at the same time. No optimization: a line is a line. SHELL: or CMake
      # would drop the second -include of a target.
      target_compile_options(${lib} PRIVATE --coverage -fprofile-update=atomic -O0
        -DCOVERAGE_COUNTS "SHELL:-include ${coverage_folder}/coverage-end.h")
    endif()
    # The static one is of the same objects.
    foreach(linked ${lib} ${lib}_static)
      if(TARGET ${linked})
        target_link_options(${linked} PUBLIC --coverage)
        target_link_libraries(${linked} INTERFACE $<${program}:coverage_end>)
        target_link_options(${linked} INTERFACE $<${program}:-Wl,-u,coverage_end>)
      endif()
    endforeach()
  endforeach()
endfunction()

cmake_language(DEFER CALL count_coverage)
