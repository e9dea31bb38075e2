// Robust fits of measured times. Times are never negative and their errors are relative: 5 % of a
// microsecond is as good as 5 % of a second. A few samples are outliers, mostly slow ones.
//
// fit_nonnegative   t = sum of c_i x_i, c_i >= 0. Least squares in relative residuals
//                   r = (fit - t) / t, reweighted (Huber): weight 1 up to k = 1.345 s, k / |r|
//                   beyond, with s = 1.4826 median |r| of the iteration before
//                   (P. J. Huber, Robust Statistics, 1981, sections 7.7 and 7.8). Each iteration is
//                   a non-negative least squares problem, solved by active sets on the normal
//                   equations (C. Lawson, R. Hanson, Solving Least Squares Problems, 1974, ch. 23;
//                   R. Bro, S. de Jong, J. Chemometrics 11, 1997).
// fit_line          the same for t = latency + per_unit * x.
// fit_segments      a line for each range of sizes. Sizes are cut where that costs least:
//                       sum of |r| / b  +  1.5 ln(samples) for each segment,
//                   the Bayesian information criterion for residuals with the density
//                   exp(-|r|/b) / 2b and three parameters a segment (two of the line, one border);
//                   b is estimated on the finest cut that is allowed. Dynamic programming over the
//                   sorted sizes finds the optimum.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace spp {

/// One measured time and what it depends on: bytes, rows, 1 for a constant, …
struct Observation {
  std::vector<double> x;  // >= 0; equally many in every observation
  double seconds = 0;     // > 0
};

struct LinearFit {
  std::vector<double> coefficients;  // seconds per unit of x, >= 0
  double spread = 0;                 // median |residual| relative to the measured time
};

/// InternalError if there is no observation, one has no positive time, or their x differ in number.
/// What the observations cannot tell apart (equal columns) shares one coefficient in some way.
LinearFit fit_nonnegative(std::span<const Observation> observations);

/// A message or kernel of size `x` took `seconds`.
struct Sample {
  double x = 0;
  double seconds = 0;
};

/// latency + per_unit * x
struct LineFit {
  double latency = 0;   // seconds, >= 0
  double per_unit = 0;  // seconds per unit of x, >= 0
  double spread = 0;    // as in LinearFit

  [[nodiscard]] double at(double x) const { return latency + per_unit * x; }
};

/// InternalError as fit_nonnegative.
LineFit fit_line(std::span<const Sample> samples);

struct LineSegment {
  double up_to = 0;  // infinite in the last
  LineFit line;
};

struct SegmentOptions {
  int most = 4;
  int least_sizes = 3;  // different sizes in a segment, unless there are fewer in all
};

/// By rising size. A border lies where the lines of its two sides meet, if that is between the
/// sizes that were measured there, else in their (geometric) middle. Time over a few hundred
/// sizes: well under a second.
std::vector<LineSegment> fit_segments(std::span<const Sample> samples,
                                      const SegmentOptions& options = {});

/// Seconds at `x`; never falls: at a border where the next line lies lower, time stays until that
/// line is above it again. The same rule as a transport's segments in topologies/.
double seconds_at(std::span<const LineSegment> segments, double x);

}  // namespace spp
