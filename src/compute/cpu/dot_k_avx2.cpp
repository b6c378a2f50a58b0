// AVX2 dots of the K types.
#if defined(__AVX2__) && defined(__F16C__)

#include "compute/cpu/dot_k_avx2.h"

namespace moetier::avx2 {

constinit const DotFn kDotQ4K = dot256<Q4_K, &DotTable::q4_k>;
constinit const DotFn kDotQ5K = dot256<Q5_K, &DotTable::q5_k>;
constinit const DotFn kDotQ6K = dot256<Q6_K, &DotTable::q6_k>;

}  // namespace moetier::avx2

#endif
