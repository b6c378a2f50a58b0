// AVX2 dots of the types below four bits and their relatives.
#if defined(__AVX2__) && defined(__F16C__)

#include "compute/cpu/dot_low_bits_avx2.h"

namespace moetier::avx2 {

void add_low_bit_dots(DotTable& table) {
  put_low_bit_dots(table);
}

}  // namespace moetier::avx2

#endif
