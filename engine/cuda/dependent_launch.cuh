// A kernel that begins before the kernel before it in the stream has ended (dependent_launch.h).
// Device code only.
#pragma once

namespace baton {

// Lets the next kernel begin; it waits by WaitForKernelBefore for what this one writes.
__device__ __forceinline__ void LetNextKernelBegin() {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}
// Waits until the kernel before has ended and what it has written is there. All threads of each
// kernel that is launched so call it, before they touch memory that any kernel writes: by its end a
// kernel says that all kernels before it have ended, too.
__device__ __forceinline__ void WaitForKernelBefore() {
  asm volatile("griddepcontrol.wait;" ::: "memory");
}

}  // namespace baton
