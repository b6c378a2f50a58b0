// Host memory as the CPU backend owns or borrows it.
#pragma once

#include <memory>

#include "compute/tensor.h"

namespace moetier::cpu {

/// Zeroed memory straight from the kernel, page-aligned: pages that nobody touches cost nothing, however large the
/// buffer is. An error that says how much was asked for if the address space or a limit refuses.
std::unique_ptr<Buffer> allocate_buffer(size_t bytes);

/// Somebody else's memory, only to be read; it must outlive the buffer.
std::unique_ptr<Buffer> wrap_buffer(const void* host, size_t bytes);

/// False for wrapped memory.
bool writable(const Buffer& buffer);

}  // namespace moetier::cpu
