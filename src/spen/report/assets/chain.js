"use strict";
// Inference of a chain in the page: messages between neighbours, and the best tagging, exactly. Scores are energies with
// their sign turned; −∞ is what is forbidden. The tests compare with Python's and with brute force.
//   log P(y) = Σ_t u_t(y_t) + Σ_t A_t(y_t, y_t+1) − log Z
const spenChain = (() => {
  const NONE = -Infinity;

  function logSum(values) {
    let top = NONE;
    for (const v of values) if (v > top) top = v;
    if (top === NONE) return NONE;
    let sum = 0;
    for (const v of values) sum += Math.exp(v - top);
    return top + Math.log(sum);
  }

  // `unary` (T K), `pairs` (K K) of all neighbours or (T − 1, K, K), both row after row.
  function chain(unary, pairs, classes, constant = 0) {
    const length = unary.length / classes, table = classes * classes;
    const offset = pairs.length > table ? (t) => t * table : () => 0;
    return { unary, length, classes, constant, pair: (t, j, k) => pairs[offset(t) + j * classes + k] };
  }

  // The same with some tags held: `known` is a Map, position → tag.
  function held(given, known) {
    const unary = Float64Array.from(given.unary);
    for (const [t, tag] of known) {
      for (let k = 0; k < given.classes; k++) if (k !== tag) unary[t * given.classes + k] = NONE;
    }
    return { ...given, unary };
  }

  // What each position believes after every step. A step carries messages to the neighbours, so after as many as there
  // are gaps everybody has heard of everybody: the last beliefs are the marginals. Undefined where no tagging is left.
  function beliefs({ unary, length: T, classes: K, constant, pair }) {
    const zeros = () => Array.from({ length: T }, () => new Float64Array(K));
    const forwards = zeros(), backwards = zeros(), sums = new Float64Array(K), frames = [];
    const believed = () => {
      const p = new Float64Array(T * K);
      for (let t = 0; t < T; t++) {
        for (let k = 0; k < K; k++) sums[k] = unary[t * K + k] + forwards[t][k] + backwards[t][k];
        const all = logSum(sums);
        for (let k = 0; k < K; k++) p[t * K + k] = all === NONE ? 0 : Math.exp(sums[k] - all);
      }
      return p;
    };
    frames.push(believed());
    for (let step = 1; step < T; step++) {
      // From the far end, so that each takes what its neighbour said a step ago.
      for (let t = T - 1; t >= step; t--) {
        const heard = new Float64Array(K);
        for (let k = 0; k < K; k++) {
          for (let j = 0; j < K; j++) sums[j] = unary[(t - 1) * K + j] + forwards[t - 1][j] + pair(t - 1, j, k);
          heard[k] = logSum(sums);
        }
        forwards[t] = heard;
      }
      for (let t = 0; t < T - step; t++) {
        const heard = new Float64Array(K);
        for (let j = 0; j < K; j++) {
          for (let k = 0; k < K; k++) sums[k] = unary[(t + 1) * K + k] + backwards[t + 1][k] + pair(t, j, k);
          heard[j] = logSum(sums);
        }
        backwards[t] = heard;
      }
      frames.push(believed());
    }
    for (let k = 0; k < K; k++) sums[k] = unary[(T - 1) * K + k] + forwards[T - 1][k];
    const logs = logSum(sums);
    return logs === NONE ? undefined : { frames, logPartition: logs - constant };
  }

  // The tagging of the largest score, of equal ones that with the first tags from the end.
  function best({ unary, length: T, classes: K, constant, pair }) {
    let scores = Float64Array.from(unary.subarray(0, K));
    const from = [];
    for (let t = 1; t < T; t++) {
      const next = new Float64Array(K), came = new Int32Array(K);
      for (let k = 0; k < K; k++) {
        let top = NONE;
        for (let j = 0; j < K; j++) {
          const score = scores[j] + pair(t - 1, j, k);
          if (score > top) [top, came[k]] = [score, j];
        }
        next[k] = top + unary[t * K + k];
      }
      scores = next;
      from.push(came);
    }
    let last = 0;
    for (let k = 1; k < K; k++) if (scores[k] > scores[last]) last = k;
    const energy = constant - scores[last], tags = [last];
    for (let t = T - 2; t >= 0; t--) tags.unshift((last = from[t][last]));
    return { tags, energy };
  }

  return { chain, held, beliefs, best };
})();
