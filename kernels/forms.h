// The compiled forms of a kernel. Each kernel has one table of them, beside its code (the part of *_vec.cc that is compiled once): a
// descriptor for each form, with its name, the tile that it works in, its functions, and how it lays out what it packs and needs for a
// while. Dispatch, packing, scratch and the shares of threads read the table, and the catalog takes names and lists from it.
//
//   struct Form { std::string_view name; Tile tile; Fn* run; size_t (*scratch)(int64_t k); };
//   constexpr Forms<Form> kForms = {{"scalar", ...}, {"avx2", ...}, {"avx512", ...}, {"avx512vnni", ...}};   // in the #if HWY_ONCE part
//   kForms[arch].run(args);
#ifndef OCTAVO_KERNELS_FORMS_H_
#define OCTAVO_KERNELS_FORMS_H_

#include <optional>
#include <string>
#include <string_view>

#include "octavo/kernels/arch/arch.h"
#include "octavo/kernels/tile/tile.h"

namespace octavo::kernels {

inline constexpr Arch kArchs[] = {Arch::kScalar, Arch::kAvx2,       Arch::kAvxVnni,
                                  Arch::kAvx512, Arch::kAvx512Vnni, Arch::kAmx};

template <typename Form>
struct Forms {
  Form scalar, avx2, avx512, avx512vnni;
  std::optional<Form> avxvnni = std::nullopt;  // none: the kernel gains nothing by dot products on ymm, avx2 serves
  std::optional<Form> amx = std::nullopt;      // none: avx512vnni serves

  constexpr const Form& operator[](Arch arch) const {
    switch (arch) {
      case Arch::kScalar:
        return scalar;
      case Arch::kAvx2:
        return avx2;
      case Arch::kAvxVnni:
        return avxvnni ? *avxvnni : avx2;
      case Arch::kAvx512:
        return avx512;
      case Arch::kAvx512Vnni:
        return avx512vnni;
      case Arch::kAmx:
        return amx ? *amx : avx512vnni;
    }
    return scalar;
  }
};

// Of a kernel whose forms differ in nothing but the function.
template <typename Fn>
using PerArch = Forms<Fn*>;

// Names of the forms that serve an Arch.
namespace internal {
std::string GemmForm(Arch arch);         // "6x64_avx512vnni": rows x columns of a tile
std::string GemmFewRowsForm(Arch arch);  // "m8_avx512vnni"
std::string_view LinearFp8Form(Arch arch, bool bf16_pairs);
std::string_view BlockedForm(Arch arch);
std::string_view BlockedInt8Form(Arch arch);
std::string_view SdpaF32Form(Arch arch);
std::string_view SdpaInt8Form(Arch arch);
std::string_view SdpaFp8Form(Arch arch, bool bf16_pairs);
std::string_view SdpaFlashF32Form(Arch arch);
std::string_view SdpaFlashInt8Form(Arch arch);
std::string_view SdpaDecodeF32Form(Arch arch);
std::string_view SdpaDecodeInt8Form(Arch arch);
}  // namespace internal

}  // namespace octavo::kernels

#endif  // OCTAVO_KERNELS_FORMS_H_
