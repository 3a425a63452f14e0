"use strict";
// Inference in the page: the descents of spen.inference on the canonical form
//   e0 + a·y + ½ y·(q∘y) + Σ c·g(C y + b) − τ H(y)
// of one example, over label sets. The tests compare every rule with Python's.
const spenSolver = (() => {
  const DUAL_LIMIT = 15, LOWEST = 1 / (1 + Math.exp(DUAL_LIMIT)), HELD_DUAL = -1e4;
  const RATES = [1e-30, 1e6], FLAT = 1e-12;

  const clamp = (x, low, high) => Math.min(Math.max(x, low), high);
  const sigmoid = (x) => 1 / (1 + Math.exp(-x));
  const xlogx = (p) => (p > 0 ? p * Math.log(p) : 0);
  const dual = (p) => {
    const inside = clamp(p, LOWEST, 1 - LOWEST);
    return Math.log(inside) - Math.log1p(-inside);
  };
  const primal = (theta) => sigmoid(clamp(theta, -DUAL_LIMIT, DUAL_LIMIT));
  const held = (known, i) => known !== null && !Number.isNaN(known[i]);

  // g and g', as in spen.energies.nonlinearities.
  const FUNCTIONS = {
    relu: [(z) => Math.max(z, 0), (z) => (z > 0 ? 1 : 0)],
    hardtanh: [(z) => clamp(z, -1, 1), (z) => (Math.abs(z) < 1 ? 1 : 0)],
    softplus: [(z) => Math.max(z, 0) + Math.log1p(Math.exp(-Math.abs(z))), sigmoid],
    sigmoid: [sigmoid, (z) => sigmoid(z) * (1 - sigmoid(z))],
    square: [(z) => z * z, (z) => 2 * z],
  };

  const negativeEntropy = (y) => {
    let sum = 0;
    for (const p of y) sum += xlogx(p) + xlogx(1 - p);
    return sum;
  };

  // The value and the gradient of the form without its entropy.
  function smoothPart(form, y) {
    const n = y.length, gradient = new Float64Array(n);
    let value = form.constant;
    for (let i = 0; i < n; i++) {
      const q = form.quadratic ? form.quadratic[i] : 0;
      value += form.linear[i] * y[i] + 0.5 * q * y[i] * y[i];
      gradient[i] = form.linear[i] + q * y[i];
    }
    for (const { measurements: C, bias, readout, nonlinearity } of form.blocks) {
      const [g, slope] = FUNCTIONS[nonlinearity];
      for (let k = 0; k < readout.length; k++) {
        const row = k * n;
        let z = bias[k];
        for (let i = 0; i < n; i++) z += C[row + i] * y[i];
        value += readout[k] * g(z);
        const weight = readout[k] * slope(z);
        if (weight !== 0) for (let i = 0; i < n; i++) gradient[i] += weight * C[row + i];
      }
    }
    return { value, gradient };
  }

  // What the descent minimises, and the gradient that the rule wants, zero at held labels.
  function evaluate(form, rule, y, known) {
    const { value, gradient } = smoothPart(form, y);
    const tau = form.tau;
    if (tau && !rule.appliesEntropy) for (let i = 0; i < y.length; i++) gradient[i] += tau * dual(y[i]);
    for (let i = 0; i < y.length; i++) if (held(known, i)) gradient[i] = 0;
    return { y, value: tau ? value + tau * negativeEntropy(y) : value, gradient };
  }

  function atDual(theta, known) {
    const point = theta.map((t, i) => clamp(held(known, i) ? HELD_DUAL : t, -DUAL_LIMIT, DUAL_LIMIT));
    return { point, y: point.map((t, i) => (held(known, i) ? known[i] : sigmoid(t))) };
  }

  const startDual = (y) => y.map((p) => clamp(dual(p), -DUAL_LIMIT, DUAL_LIMIT));
  const rateOf = (settings, steps) => settings.lr / (1 + settings.decay * steps);
  const withMomentum = (settings, state, gradient, rate) => state.point.map(
    (u, i) => u - rate * gradient[i] + settings.momentum * (u - state.previous[i]));

  function mirrorBundle(settings, state, here, tau, known) {
    const { y, value, gradient } = here, n = y.length;
    const smooth = value - tau * negativeEntropy(y);
    let rate, slope = gradient, cut = smooth;
    if (!state.memory) {
      let steepest = 0;
      for (const g of gradient) steepest = Math.max(steepest, Math.abs(g));
      rate = clamp(settings.reach / steepest, ...RATES);
    } else {
      const last = state.memory;
      rate = clamp(last.rate * (value > last.value ? settings.shrink : settings.grow), ...RATES);
      const gap = smooth - last.promised;
      if (gap > 0) {
        let along = -gap * (1 / rate + tau), bend = 0;
        for (let i = 0; i < n; i++) {
          const change = gradient[i] - last.slope[i], spread = y[i] * (1 - y[i]) * change;
          along += spread * (gradient[i] + tau * state.point[i]);
          bend += spread * change;
        }
        const share = clamp(along / Math.max(bend, FLAT), 0, 1);
        slope = gradient.map((g, i) => g - share * (g - last.slope[i]));
        cut = smooth - share * gap;
      }
    }
    const next = atDual(state.point.map((t, i) => (t - rate * slope[i]) / (1 + rate * tau)), known);
    let promised = cut;
    for (let i = 0; i < n; i++) promised += slope[i] * (next.y[i] - y[i]);
    return { ...next, memory: { rate, slope, promised, value } };
  }

  const RULES = {
    MirrorBundle: { appliesEntropy: true, start: startDual, step: mirrorBundle },
    MirrorDescent: {
      appliesEntropy: true,
      start: startDual,
      step(settings, state, here, tau, known) {
        const rate = rateOf(settings, state.steps);
        const moved = withMomentum(settings, state, here.gradient, rate);
        return atDual(moved.map((t) => t / (1 + rate * tau)), known);
      },
    },
    MeanField: {
      appliesEntropy: true,
      start: startDual,
      step(settings, state, here, tau, known) {
        const d = settings.damping;
        return atDual(here.gradient.map((g, i) => d * state.point[i] - ((1 - d) * g) / tau), known);
      },
    },
    ProjectedGradient: {
      appliesEntropy: false,
      start: (y) => y.slice(),
      step(settings, state, here, tau, known) {
        const moved = withMomentum(settings, state, here.gradient, rateOf(settings, state.steps));
        const y = moved.map((u, i) => (held(known, i) ? known[i] : clamp(u, 0, 1)));
        return { point: y, y };
      },
    },
  };

  // How an example's descent ends: see spen.inference.descent.Stopping.
  function settled(stopping, now, last) {
    const change = Math.abs(now.value - last.value);
    const { objective_rtol: rtol, iterate_atol: atol } = stopping;
    const settles = change < rtol * Math.max(Math.abs(now.value), Math.abs(last.value));
    const needsBoth = stopping.require === "both" && rtol > 0 && atol > 0;
    if (settles !== needsBoth) return settles;
    let moved = 0;
    for (let i = 0; i < now.y.length; i++) moved = Math.max(moved, Math.abs(now.y[i] - last.y[i]));
    return moved < atol;
  }

  // Minimises one example. `known` holds 1, 0, or NaN for labels to infer; null: all of them.
  // Returns every iterate with its energy, and the answer: the last or the best of them.
  function solve(form, start, known, how) {
    const begin = Float64Array.from(start, (p) => clamp(p, 0, 1));
    const first = begin.map((p, i) => (held(known, i) ? known[i] : p));
    if (how.rule === "none") {
      const at = { y: first, energy: smoothPart(form, first).value + form.tau * negativeEntropy(first) };
      return { trace: [at], answer: at, steps: 0 };
    }
    const rule = RULES[how.rule], { settings, stopping } = how, tau = form.tau;
    let state = { point: rule.start(begin), steps: 0 };
    state.previous = state.point;
    let here = evaluate(form, rule, first, known);
    const trace = [{ y: first, energy: here.value }];
    let answer = trace[0];
    for (let step = 1; step <= stopping.max_steps; step++) {
      const moved = rule.step(settings, state, here, tau, known), last = here;
      state = { ...moved, previous: state.point, steps: step };
      here = evaluate(form, rule, moved.y, known);
      const at = { y: here.y, energy: here.value };
      trace.push(at);
      if (how.fixed) {
        answer = at;
        continue;
      }
      const finite = Number.isFinite(here.value);
      if (finite && !(here.value >= answer.energy)) answer = at;
      if (!finite || settled(stopping, here, last)) break;
    }
    return { trace, answer, steps: trace.length - 1 };
  }

  // Probabilities that were tuned on held-out rows; known labels keep their value.
  function calibrate(y, [none, half], known) {
    let count = 0;
    for (let i = 0; i < y.length; i++) count += held(known, i) ? 1 : 0;
    const near = Math.min(1, (2 * count) / y.length);
    const between = (a, b) => a + near * (b - a);
    const scale = between(none.scale, half.scale);
    return y.map((p, i) => {
      if (held(known, i)) return known[i];
      const inside = clamp(p, 1e-7, 1 - 1e-7);
      return primal(scale * Math.log(inside / (1 - inside)) + between(none.shift[i], half.shift[i]));
    });
  }

  const entropy = (p) => -xlogx(p) - xlogx(1 - p);

  // The labels that are not known, those first whose answer is expected to tell most about the others: see
  // spen.estimators.asking. `most` is how many are looked at, the most uncertain ones.
  function questions(form, start, known, how, calibration, most) {
    const given = known === null ? new Float64Array(start.length).fill(NaN) : known;
    const infer = (set) => calibrate(solve(form, start, set, how).answer.y, calibration, set);
    const now = infer(given), doubt = Array.from(now, (p) => Math.abs(p - 0.5));
    const free = [...now.keys()].filter((i) => !held(given, i)).sort((i, j) => doubt[i] - doubt[j] || i - j);
    const found = free.slice(0, most).map((label) => {
      const [no, yes] = [0, 1].map((value) => infer(given.map((each, i) => (i === label ? value : each))));
      const p = now[label];
      let gain = 0;
      for (let i = 0; i < now.length; i++) {
        if (i === label) continue;
        const before = p * yes[i] + (1 - p) * no[i];
        gain += entropy(before) - p * entropy(yes[i]) - (1 - p) * entropy(no[i]);
      }
      return { label, probability: p, gain };
    });
    return found.sort((a, b) => b.gain - a.gain);
  }

  // From probabilities to labels: see spen.decoding.
  function decode(p, { name, tuned }) {
    const n = p.length, on = new Uint8Array(n);
    if (name === "row_threshold") {
      const [threshold, power] = tuned;
      let most = 0;
      for (let i = 0; i < n; i++) most = Math.max(most, p[i]);
      const bar = threshold * Math.pow(most, power);
      for (let i = 0; i < n; i++) on[i] = p[i] > bar ? 1 : 0;
      return on;
    }
    if (name !== "expected_f1") {
      for (let i = 0; i < n; i++) on[i] = p[i] > (Array.isArray(tuned) ? tuned[i] : tuned) ? 1 : 0;
      return on;
    }
    let none = tuned, total = 0, top = 0;
    for (const each of p) {
      none *= 1 - each;
      total += each;
      top = Math.max(top, each);
    }
    const empty = Math.min(none, 1 - top), size = Math.max(1, total / Math.max(1 - empty, 1e-300));
    const order = Array.from(p.keys()).sort((i, j) => p[j] - p[i] || i - j);
    let sum = 0, best = -1, count = 0;
    order.forEach((i, k) => {
      sum += p[i];
      const value = (2 * sum) / (k + 1 + size);
      if (value > best) [best, count] = [value, k + 1];
    });
    if (empty > best) return on;
    for (const i of order.slice(0, count)) on[i] = p[i] > 0 ? 1 : 0;
    return on;
  }

  return { solve, calibrate, questions, decode };
})();
