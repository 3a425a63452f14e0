// Steps through the inference of one row at a time, and infers again when a label is set by hand.
const spenPlayer = (() => {
  const SHOWN_ANSWERS = 6, NOTABLE = 0.005, FRAME_MS = 350;

  const { floats, make } = spenElements;

  // A name without the characters that keep its direction to itself, which nobody types.
  const plain = (name) => name.replace(/[\u2066-\u2069]/g, "");

  // Where inference runs in the page: any labels may be set.
  class Computed {
    constructor(facts) {
      this.facts = facts;
      this.size = facts.names.length;
      this.blocks = facts.inference.blocks.map((block) => ({
        measurements: floats(block.measurements),
        readout: floats(block.readout),
        nonlinearity: block.nonlinearity,
      }));
    }

    form(index) {
      const row = this.facts.inference.rows[index];
      return {
        constant: row.constant,
        linear: floats(row.linear),
        quadratic: row.quadratic === null ? null : floats(row.quadratic),
        tau: row.tau,
        blocks: this.blocks.map((block, k) => ({ ...block, bias: floats(row.biases[k]) })),
      };
    }

    known(set) {
      if (!set.size) return null;
      const known = new Float64Array(this.size).fill(NaN);
      for (const [label, value] of set) known[label] = value;
      return known;
    }

    start(index) {
      return floats(this.facts.inference.rows[index].start);
    }

    // Which label to set next, and what its answer is expected to tell; undefined where all are set.
    propose(index, set) {
      const { calibration, shortlist, inference } = this.facts;
      const place = [this.form(index), this.start(index), this.known(set), inference.how];
      return spenSolver.questions(...place, calibration, shortlist)[0];
    }

    run(index, set) {
      const known = this.known(set), how = this.facts.inference.how;
      const { trace, answer } = spenSolver.solve(this.form(index), this.start(index), known, how);
      const frames = trace.map((at, step) => ({ step, y: (i) => at.y[i], energy: at.energy }));
      // The last frame is the answer: the best iterate, where it is not the last.
      frames[frames.length - 1] = { ...frames[frames.length - 1], y: (i) => answer.y[i], energy: answer.energy };
      const p = spenSolver.calibrate(answer.y, this.facts.calibration, known);
      const on = spenSolver.decode(p, this.facts.decoding);
      return { frames, predicted: [...on.keys()].filter((i) => on[i]), labels: [...answer.y.keys()] };
    }
  }

  // Where it cannot: the iterates and the answers that Python has put into the page, one label at a time.
  class Recorded {
    constructor(facts) {
      this.facts = facts;
    }

    run(index, set) {
      const example = this.facts.examples[index];
      const at = (values) => (i) => values[example.shown.indexOf(i)];
      const frames = example.trace.steps.map((step, k) => ({
        step, y: at(example.trace.y[k]), energy: example.energies[step],
      }));
      frames[frames.length - 1].y = at(example.end);
      const labels = example.shown;
      if (!set.size) return { frames, predicted: example.predicted, labels };
      const [[label, value]] = set;
      const answer = example.answers[`${label}=${value}`];
      const last = { step: 1, y: at(answer.y), energy: answer.energy };
      const first = { ...frames[0], y: (i) => (i === label ? value : frames[0].y(i)) };
      return { frames: [first, last], predicted: null, labels };
    }
  }

  class Player {
    constructor(root, facts) {
      this.root = root;
      this.facts = facts;
      this.source = facts.inference ? new Computed(facts) : new Recorded(facts);
      this.several = Boolean(facts.inference);
      this.timer = null;
      this.build();
      this.choose(0);
    }

    build() {
      const { examples, names } = this.facts;
      const option = (e, k) => make("option", { value: k }, `Row ${e.row.toLocaleString("en")} (${e.why})`);
      this.select = make("select", { "aria-label": "Row", change: () => this.choose(Number(this.select.value)) },
        ...examples.map(option));
      const button = (text, label, act) => make("button", { type: "button", "aria-label": label, click: act }, text);
      this.slider = make("input", {
        type: "range", min: 0, step: 1, "aria-label": "Step of inference",
        input: () => { this.pause(); this.show(Number(this.slider.value)); },
      });
      this.playing = button("Play", "Play the steps", () => (this.timer ? this.pause() : this.play()));
      this.caption = make("span", { class: "step", "aria-live": "polite" });
      this.free = button("Free all labels", "Free all labels that were set", () => { this.set.clear(); this.infer(); });
      const controls = make("div", { class: "controls" }, this.select,
        button("‹", "Previous step", () => { this.pause(); this.show(this.frame - 1); }),
        this.playing,
        button("›", "Next step", () => { this.pause(); this.show(this.frame + 1); }),
        this.slider, this.caption, this.free);
      this.asking = button("Propose a label to set", "Propose the label whose answer tells most", () => this.propose());
      this.advice = make("p", { class: "advice", "aria-live": "polite" });
      if (this.several) controls.append(this.asking);
      if (this.several && names.length > examples[0].shown.length) controls.append(...this.finder());
      this.bars = make("ul", { class: "bars" });
      this.side = make("div", { class: "side" });
      this.root.replaceChildren(make("div", { class: "player" }, controls, this.advice, this.bars, this.side));
      this.root.hidden = false;
    }

    // A field that adds any label to those shown.
    finder() {
      const { names } = this.facts;
      const options = make("datalist", { id: "all-labels" }, ...names.map((name) => make("option", { value: name })));
      const field = make("input", {
        type: "text", size: 26, list: "all-labels", placeholder: `show another of ${names.length} labels`, "aria-label": "Show another label",
        change: () => {
          const label = names.findIndex((name) => plain(name) === plain(field.value));
          if (label < 0) return;
          this.added.add(label);
          field.value = "";
          this.draw();
        },
      });
      return [field, options];
    }

    choose(index) {
      this.pause();
      this.index = index;
      this.set = new Map();
      this.added = new Set();
      this.before = this.source.run(index, this.set);
      this.infer();
    }

    // Infers with the labels that are set, and shows the end.
    infer() {
      this.pause();
      this.now = this.set.size ? this.source.run(this.index, this.set) : this.before;
      this.slider.max = this.now.frames.length - 1;
      this.slider.disabled = this.now.frames.length < 2;
      this.free.disabled = !this.set.size;
      this.asking.disabled = this.set.size === this.facts.names.length;
      this.proposed = null;
      this.advice.replaceChildren();
      this.changes = this.changed();
      this.draw();
      this.show(this.now.frames.length - 1);
    }

    changed() {
      if (!this.set.size) return [];
      const end = this.now.frames.at(-1), before = this.before.frames.at(-1);
      return this.now.labels.filter((i) => !this.set.has(i))
        .map((i) => [i, end.y(i) - before.y(i)])
        .filter(([, by]) => Math.abs(by) >= NOTABLE)
        .sort((a, b) => Math.abs(b[1]) - Math.abs(a[1]));
    }

    // Shows the label whose answer is expected to tell most about the others, ready to be set.
    propose() {
      this.pause();
      const { label, probability, gain } = this.source.propose(this.index, this.set);
      if (gain < 0.0005) {
        this.advice.replaceChildren("No label is left whose answer would tell anything about the others.");
        return;
      }
      this.added.add(label);
      this.proposed = label;
      this.draw();
      this.show(this.frame);
      const tells = `${Math.round(100 * probability)} % likely when calibrated; knowing it is expected to take`;
      this.advice.replaceChildren("Set ", make("b", {}, this.facts.names[label]),
        ` next: ${tells} ${gain.toFixed(3)} nats of doubt off the others.`);
      this.bars.querySelector(`[data-set="${label}=0"]`).focus();
    }

    hold(label, value) {
      if (this.set.get(label) === value) this.set.delete(label);
      else {
        if (!this.several) this.set.clear();
        this.set.set(label, value);
      }
      const focus = [label, value];
      this.infer();
      this.bars.querySelector(`[data-set="${focus.join("=")}"]`)?.focus();
    }

    draw() {
      const example = this.facts.examples[this.index], truth = new Set(example.truth);
      const answers = this.changes.slice(0, SHOWN_ANSWERS).map(([i]) => i);
      const labels = [...new Set([...example.shown, ...this.added, ...this.set.keys(), ...answers])];
      const before = this.before.frames.at(-1);
      this.lines = labels.map((label) => {
        const name = this.facts.names[label], isTrue = truth.has(label), isSet = this.set.has(label);
        const fill = make("div", { class: "fill" }), tick = make("div", { class: "tick" });
        const ghost = make("div", { class: "ghost" }), value = make("span", { class: "value" });
        const hold = (to) => make("button", {
          type: "button", "data-set": `${label}=${to}`, "aria-pressed": String(this.set.get(label) === to),
          "aria-label": `Set ${name} to ${to}`, click: () => this.hold(label, to),
        }, String(to));
        const mark = isTrue ? [make("span", { class: "mark", title: "true" }, "●")] : [];
        const well = make("div", { class: "well" }, fill, ...(this.set.size ? [ghost] : [tick]));
        ghost.style.width = `${100 * before.y(label)}%`;
        const kind = isSet ? "held" : label === this.proposed ? "proposed" : "";
        const line = make("li", { class: kind, "data-label": name },
          make("span", { class: isTrue ? "label is-true" : "label", title: isTrue ? `${name} (true)` : name }, name),
          make("span", { class: "mark-of" }, ...mark), well, value, make("span", { class: "set" }, hold(0), hold(1)));
        return { label, line, fill, tick, value };
      });
      this.bars.replaceChildren(...this.lines.map((each) => each.line));
      const all = this.facts.names.length;
      if (labels.length < all) {
        this.bars.append(make("li", { class: "rest" }, `and ${all - labels.length} less likely labels, none of them true`));
      }
      this.tell();
    }

    // What the answer is, in words.
    tell() {
      const example = this.facts.examples[this.index], { names } = this.facts;
      const list = (labels) => labels.map((i) => names[i]).join(", ") || "nothing";
      const paragraph = (title, words) => make("p", {}, make("b", {}, `${title} `), words);
      const parts = [this.chart(), paragraph("True:", list(example.truth))];
      if (this.now.predicted) parts.push(paragraph("Predicted:", list(this.now.predicted)));
      if (this.set.size) {
        const held = [...this.set].map(([i, value]) => `${names[i]} = ${value}`).join(", ");
        parts.push(paragraph("Set by hand:", held));
        if (this.changes.length) {
          parts.push(make("p", {}, make("b", {}, "The others answer:")),
            make("ul", { class: "answers" }, ...this.changes.slice(0, SHOWN_ANSWERS).map(([i, by]) =>
              make("li", {}, `${names[i]} ${by > 0 ? "+" : "−"}${Math.abs(by).toFixed(2)}`))));
        } else parts.push(make("p", {}, "No other label moves: the energy does not link them here."));
        parts.push(make("p", {}, "Dashed marks: where inference ended before."));
      } else {
        parts.push(make("p", {}, "Thin marks: where inference began. Press 0 or 1 beside a label to set it, and see the others answer."));
      }
      this.side.replaceChildren(...parts);
    }

    // The energy along the steps, with a dot at the present one.
    chart() {
      const W = 300, H = 130, L = 8, T = 22, B = 20, { frames } = this.now;
      const energies = frames.map((f) => f.energy);
      const low = Math.min(...energies), high = Math.max(...energies);
      const x = (k) => L + (frames.length > 1 ? k / (frames.length - 1) : 0) * (W - 2 * L);
      const y = (e) => T + (high > low ? (high - e) / (high - low) : 1) * (H - T - B);
      const svg = (tag, attributes, text = "") => {
        const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
        for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
        element.textContent = text;
        return element;
      };
      const drawing = svg("svg", { viewBox: `0 0 ${W} ${H}`, class: "chart", role: "img", "aria-label": "Energy along the steps" });
      const points = energies.map((e, k) => `${x(k).toFixed(1)},${y(e).toFixed(1)}`).join(" ");
      this.energy = svg("text", { x: 0, y: 12 });
      this.dot = svg("circle", { class: "here", r: 4.5 });
      drawing.append(this.energy, svg("line", { class: "axis", x1: L, x2: W - L, y1: H - B + 4, y2: H - B + 4 }),
        svg("polyline", { class: "line first", points }), this.dot,
        svg("text", { x: L, y: H - 2 }, "start"), svg("text", { x: W - L, y: H - 2, "text-anchor": "end" }, "end"));
      this.place = (k) => {
        this.dot.setAttribute("cx", x(k));
        this.dot.setAttribute("cy", y(energies[k]));
        this.energy.textContent = `energy ${energies[k].toFixed(3)}`;
      };
      return drawing;
    }

    show(number) {
      const { frames } = this.now, last = frames.length - 1;
      this.frame = Math.min(Math.max(number, 0), last);
      const frame = frames[this.frame];
      this.slider.value = this.frame;
      this.caption.textContent = `step ${frame.step} of ${frames[last].step}`;
      const first = frames[0];
      for (const { label, fill, tick, value } of this.lines) {
        const y = frame.y(label) ?? 0;
        fill.style.width = `${100 * y}%`;
        tick.style.left = `${100 * (first.y(label) ?? 0)}%`;
        value.textContent = y.toFixed(2);
        value.dataset.y = y;
      }
      this.place(this.frame);
    }

    play() {
      const { frames } = this.now;
      if (this.frame === frames.length - 1) this.show(0);
      this.playing.textContent = "Pause";
      const beat = () => {
        this.show(this.frame + 1);
        if (this.frame >= frames.length - 1) this.pause();
      };
      this.timer = setInterval(beat, Math.min(FRAME_MS, 6000 / frames.length));
    }

    pause() {
      clearInterval(this.timer);
      this.timer = null;
      this.playing.textContent = "Play";
    }
  }

  return { Player };
})();
