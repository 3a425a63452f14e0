// What Sphinx's search gives for a match, and on top of that: what most people look for comes
// first. Baselines have all methods of the classifier, and the changelog nearly every word.
var Scorer = {
  score: ([page, , , , score]) => {
    if (page === "changelog") return score - 20;
    return page.startsWith("reference/spen.baselines.") ? score - 10 : score;
  },
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
