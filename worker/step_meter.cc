#include "worker/step_meter.h"

namespace baton {
namespace {

// The first step is taken to be nearly all base, and attention to be nothing, until others tell.
// Units of terms that may fit as zero: a row as a share of the step, and keys for a whole step.
constexpr double kRowShare = .1, kKeyShare = 1e-4;
constexpr double kPrior = 1e-2;  // rows and keys of neighbouring steps are alike
constexpr double kMinBeside = .05;

}  // namespace

void StepMeter::Add(double rows, double keys, double prefill_seconds, double seconds) {
  if (!(rows > 0 && keys > 0 && seconds > 0)) return;
  if (!fit_) {
    if (prefill_seconds >= seconds) return;
    const double plain = seconds - prefill_seconds, row = kRowShare * plain / rows;
    const double base = plain - row * rows;
    fit_.emplace(LinearFit<4>::Terms{base, row, 0, 1},
                 LinearFit<4>::Terms{base, row, kKeyShare * plain, 1},
                 LinearFit<4>::Rules{.min = {0, 0, 0, kMinBeside}, .prior = kPrior});
  }
  fit_->Add({1, rows, keys, prefill_seconds}, seconds);
  const auto& [base, row, key, beside] = fit_->coefficients();
  cost_ = {.base = base, .row = row, .key = key, .beside = beside};
}

}  // namespace baton
