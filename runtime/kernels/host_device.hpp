// Functions marked SPP_HOST_DEVICE are compiled for the GPU, too, where nvcc compiles them: number
// formats and index arithmetic are the same on both sides, and tested on the host.
#pragma once

#if defined(__CUDACC__)
#define SPP_HOST_DEVICE __host__ __device__
#else
#define SPP_HOST_DEVICE
#endif
