// The operations that go row by row or element by element.
#pragma once

#include "base/thread_pool.h"
#include "compute/compute.h"
#include "compute/cpu/row_ops.h"

namespace moetier::cpu {

/// As the members of Compute with the same names.
void get_rows(ThreadPool& pool, const Tensor& table, const Tensor& ids, const Tensor& out);
void rms_norm(ThreadPool& pool, const RowOps& ops, const Tensor& x, const Tensor& weight, float eps, const Tensor& out);
void add(ThreadPool& pool, const RowOps& ops, const Tensor& a, const Tensor& b, const Tensor& out);
void clamp(ThreadPool& pool, float low, float high, const Tensor& x, const Tensor& out);
void soft_cap(ThreadPool& pool, float limit, const Tensor& x, const Tensor& out);
void scale(ThreadPool& pool, const RowOps& ops, float factor, const Tensor& x, const Tensor& out);
void glu(ThreadPool& pool, const RowOps& ops, Activation activation, const Tensor& gate, const Tensor& up,
         const Tensor& out);
void temperature(ThreadPool& pool, const RowOps& ops, const TemperatureParams& params, const Tensor& positions,
                 const Tensor& x);
void sigmoid_gate(ThreadPool& pool, const RowOps& ops, const Tensor& gate, const Tensor& x, const Tensor& out);

}  // namespace moetier::cpu
