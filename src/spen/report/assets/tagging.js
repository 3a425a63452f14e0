// Steps through the inference of one sentence at a time, and infers again when a tag is set by hand.
const spenTagging = (() => {
  const { bytes, floats, make } = spenElements;
  const FRAME_MS = 450, SHOWN_TAGS = 8;
  const MISSING = -1;

  const signed = (value) => value.toFixed(3).replace("-", "−");
  const percent = (p) => (p === null ? "–" : p > 0 && p < 0.005 ? "<1 %" : `${Math.round(100 * p)} %`);

  // Where the energy is a chain: the page infers, exactly, and any tags may be set.
  class Computed {
    constructor(facts) {
      this.facts = facts;
      this.several = true;
    }

    chain(index, set) {
      const { names, pairs, examples } = this.facts, own = examples[index].chain;
      const free = spenChain.chain(floats(own.unary), floats(own.pairs ?? pairs), names.length, own.constant);
      return set.size ? spenChain.held(free, set) : free;
    }

    run(index, set) {
      const chain = this.chain(index, set), found = spenChain.beliefs(chain), K = chain.classes;
      const { tags, energy } = spenChain.best(chain);
      return {
        frames: found.frames.map((p, step) => ({ step, p: (t, k) => p[t * K + k] })),
        tags, energy, logPartition: found.logPartition,
      };
    }

    // Whether a tag may be set beside the others that are.
    allows(index, set, t, k) {
      return spenChain.best(this.chain(index, new Map([...set, [t, k]]))).energy < Infinity;
    }
  }

  // Where it is not: the steps and the answers that Python has put into the page, one tag at a time.
  class Recorded {
    constructor(facts) {
      this.facts = facts;
      this.several = false;
    }

    run(index, set) {
      const { names, examples } = this.facts, example = examples[index], K = names.length;
      const frames = example.trace.y.map((y, k) => {
        const p = floats(y);
        return { step: example.trace.steps[k], p: (t, tag) => p[t * K + tag] };
      });
      if (!set.size) return { frames, tags: example.predicted, energy: null };
      const [[place, tag]] = set;
      const answer = example.answers[`${place}=${tag}`], whole = (packed) => [...new Uint16Array(bytes(packed))];
      const tags = whole(answer.tags), which = whole(answer.top), values = whole(answer.p);
      const kept = which.length / example.tokens.length;
      const at = (t, k) => {
        if (t === place) return Number(k === tag);
        for (let i = t * kept; i < (t + 1) * kept; i++) if (which[i] === k) return values[i] / 10000;
        return null;
      };
      return { frames: [{ step: 1, p: at }], tags, energy: null };
    }

    allows(index, set, t, k) {
      return `${t}=${k}` in this.facts.examples[index].answers;
    }
  }

  class Tagging {
    constructor(root, facts) {
      this.root = root;
      this.facts = facts;
      this.source = facts.why_not === null ? new Computed(facts) : new Recorded(facts);
      this.timer = null;
      this.all = false;
      this.build();
      this.choose(0);
    }

    build() {
      const { examples } = this.facts;
      const words = (e) => e.tokens.slice(0, 6).join(" ") + (e.tokens.length > 6 ? " …" : "");
      this.select = make("select", { "aria-label": "Sentence", change: () => this.choose(Number(this.select.value)) },
        ...examples.map((e, k) => make("option", { value: k }, `${e.number.toLocaleString("en")} (${e.why}): ${words(e)}`)));
      const button = (text, label, act) => make("button", { type: "button", "aria-label": label, click: act }, text);
      this.slider = make("input", {
        type: "range", min: 0, step: 1, "aria-label": "Step of inference",
        input: () => { this.pause(); this.show(Number(this.slider.value)); },
      });
      this.playing = button("Play", "Play the steps", () => (this.timer ? this.pause() : this.play()));
      this.caption = make("span", { class: "step", "aria-live": "polite" });
      this.free = button("Free all tags", "Free all tags that were set", () => { this.set.clear(); this.infer(); });
      const controls = make("div", { class: "controls" }, this.select,
        button("‹", "Previous step", () => { this.pause(); this.show(this.frame - 1); }), this.playing,
        button("›", "Next step", () => { this.pause(); this.show(this.frame + 1); }),
        this.slider, this.caption, this.free);
      this.line = make("div", { class: "sentence" });
      this.bars = make("div", { class: "bars" });
      this.side = make("div", { class: "side", "aria-live": "polite" });
      this.root.replaceChildren(make("div", { class: "player" }, controls, this.line, this.bars, this.side));
      this.root.hidden = false;
    }

    get example() {
      return this.facts.examples[this.index];
    }

    choose(index) {
      this.pause();
      this.index = index;
      this.set = new Map();
      this.before = this.source.run(index, this.set);
      // The first that is wrong is worth a look.
      const { truth, predicted } = this.example;
      this.place = Math.max(0, truth.findIndex((tag, t) => tag !== MISSING && tag !== predicted[t]));
      this.infer();
    }

    infer() {
      this.pause();
      this.now = this.set.size ? this.source.run(this.index, this.set) : this.before;
      this.slider.max = this.now.frames.length - 1;
      this.slider.disabled = this.now.frames.length < 2;
      this.free.disabled = !this.set.size;
      this.draw();
      this.show(this.now.frames.length - 1);
    }

    hold(t, k) {
      if (this.set.get(t) === k) this.set.delete(t);
      else {
        if (!this.source.several) this.set.clear();
        this.set.set(t, k);
      }
      this.infer();
      this.bars.querySelector(`[data-set="${t}=${k}"]`)?.focus();
    }

    look(t) {
      this.place = t;
      this.show(this.frame);
    }

    draw() {
      const { tokens, truth } = this.example, { names } = this.facts;
      this.tokens = tokens.map((word, t) => {
        const chip = make("b", { class: "chip" }), share = make("small", {});
        const element = make("button", { type: "button", class: "token", "data-position": t, click: () => this.look(t) },
          make("span", { class: "word" }, word), chip, share);
        const told = truth[t] === MISSING ? "not told" : names[truth[t]];
        return { element, chip, share, word, told };
      });
      this.line.replaceChildren(...this.tokens.map((each) => each.element));
      const parts = [], paragraph = (title, words) => parts.push(make("p", {}, make("b", {}, `${title} `), words));
      if (this.set.size) {
        const held = [...this.set].map(([t, k]) => `${tokens[t]} = ${names[k]}`).join(", ");
        paragraph("Set by hand:", held);
        const changed = this.now.tags.map((tag, t) => [t, this.before.tags[t], tag])
          .filter(([t, a, b]) => a !== b && !this.set.has(t));
        if (changed.length) {
          parts.push(make("p", {}, make("b", {}, "The others answer:")), make("ul", { class: "answers" },
            ...changed.map(([t, a, b]) => make("li", {}, `${tokens[t]} (${t}): ${names[a]} → ${names[b]}`))));
        } else parts.push(make("p", {}, "No other position takes another tag."));
        if (this.now.logPartition !== undefined) {
          const share = Math.exp(this.now.logPartition - this.before.logPartition);
          const words = share < 0.0001 ? share.toExponential(1) : `${(100 * share).toFixed(2)}\u00a0%`;
          paragraph("Before that was set, its probability was", `${words}.`);
        }
      } else {
        const wrong = this.now.tags.map((tag, t) => [t, tag]).filter(([t, k]) => truth[t] !== MISSING && truth[t] !== k);
        const told = wrong.map(([t, k]) => `${tokens[t]} (${names[k]}, not ${names[truth[t]]})`);
        paragraph("Wrong tags:", told.join("; ") || "none");
        parts.push(make("p", {}, "Choose a word, then a tag of the list to set it, and see the others answer."));
      }
      if (this.now.energy !== null) {
        const was = this.set.size ? ` (before: ${signed(this.before.energy)})` : "";
        paragraph("Energy of the best tagging:", signed(this.now.energy) + was);
      }
      this.side.replaceChildren(...parts);
    }

    // The tags of one position, the likeliest first, each with a button that sets it.
    list(frame) {
      const { names, hues } = this.facts, t = this.place, { word, told } = this.tokens[t];
      const end = this.now.frames.at(-1), before = this.before.frames.at(-1);
      // In the order of the end, so that lines stay where they are along the steps.
      const order = [...names.keys()].sort((a, b) => (before.p(t, b) ?? 0) - (before.p(t, a) ?? 0) || a - b);
      const shown = order.filter((k, place) => this.all || place < SHOWN_TAGS || this.set.get(t) === k);
      const rows = shown.map((k) => {
        const p = frame.p(t, k), pressed = this.set.get(t) === k;
        const possible = pressed || this.source.allows(this.index, this.set, t, k);
        const button = make("button", {
          type: "button", "data-set": `${t}=${k}`, "aria-pressed": String(pressed), disabled: !possible,
          "aria-label": `Set ${word} to ${names[k]}`, click: () => this.hold(t, k),
        }, "set");
        return make("li", { class: pressed ? "held" : null, style: spenTagging.tint(hues[k]) },
          make("span", { class: "label" }, make("b", { class: "chip" }, names[k])),
          make("span", { class: "well" }, make("span", { class: "fill", style: `width:${100 * (p ?? 0)}%` }),
            make("span", { class: "ghost", style: `left:${100 * (before.p(t, k) ?? 0)}%` })),
          make("span", { class: "value", "data-tag": names[k], "data-p": p ?? "" }, percent(p)), button);
      });
      const title = make("h3", {}, `“${word}”`, make("small", {}, `position ${t}, true tag: ${told}`));
      this.bars.replaceChildren(title, make("ul", {}, ...rows));
      const rest = names.length - shown.length, open = () => { this.all = true; this.list(frame); };
      if (rest) this.bars.append(make("button", { type: "button", class: "more", click: open }, `Show ${rest} tags that are less likely`));
    }

    show(number) {
      const { frames, tags } = this.now, last = frames.length - 1, { names, hues } = this.facts, { truth } = this.example;
      this.frame = Math.min(Math.max(number, 0), last);
      const frame = frames[this.frame], atEnd = this.frame === last;
      this.slider.value = this.frame;
      this.caption.textContent = last ? `step ${frame.step} of ${frames[last].step}` : "the answer";
      this.tokens.forEach(({ element, chip, share, word }, t) => {
        let tag = tags[t];
        // On the way there is no tagging, but the likeliest tag of each position.
        if (!atEnd) for (let k = 0; k < names.length; k++) if (frame.p(t, k) > frame.p(t, tag)) tag = k;
        const p = frame.p(t, tag), wrong = truth[t] !== MISSING && truth[t] !== tag;
        chip.textContent = names[tag];
        share.textContent = percent(p);
        element.setAttribute("style", spenTagging.tint(hues[tag]));
        element.dataset.tag = names[tag];
        element.dataset.p = p ?? "";
        element.classList.toggle("wrong", wrong);
        element.classList.toggle("held", this.set.has(t));
        element.classList.toggle("changed", atEnd && tag !== this.before.tags[t] && !this.set.has(t));
        element.setAttribute("aria-pressed", String(t === this.place));
        const says = `${names[tag]}, ${percent(p)}${wrong ? ", wrong" : ""}${this.set.has(t) ? ", set by hand" : ""}`;
        element.setAttribute("aria-label", `Position ${t}, ${word}: ${says}`);
      });
      this.list(frame);
    }

    play() {
      const { frames } = this.now;
      if (this.frame === frames.length - 1) this.show(0);
      this.playing.textContent = "Pause";
      const beat = () => {
        this.show(this.frame + 1);
        if (this.frame >= frames.length - 1) this.pause();
      };
      this.timer = setInterval(beat, Math.min(FRAME_MS, 8000 / frames.length));
    }

    pause() {
      clearInterval(this.timer);
      this.timer = null;
      this.playing.textContent = "Play";
    }
  }

  // The style that gives a tag its colour; tags without a hue are grey.
  const tint = (hue) => (hue === null ? "" : `--hue:${hue};--colour:1`);

  return { Tagging, tint };
})();
