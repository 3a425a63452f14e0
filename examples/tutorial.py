"""Ten minutes, from a table to a page

You have a table with a row for each thing, and one of its columns says which labels the thing has.
In the end you have a model that labels new rows, one page that shows what it has learned, and
answers to a few questions that an ordinary classifier cannot take. It needs
`pip install '.[fast,report,tables]'`, in the folder of spen.
"""

# %% [markdown]
# ## A table
# This one is made up: 300 photos with a caption, a place, a date, and tags. **If you have a table
# of your own, leave this cell out**, and put its name for `photos.csv` below, and the name of its
# column of labels for `tags`.

# %%
import numpy as np
import pandas as pd

SCENES = {  # what is to see, and how likely; what people write below; the month
    "beach": ({"sea": 1, "sun": 0.9, "sand": 0.9, "boat": 0.3}, "swimming waves salt warm", 7),
    "harbour": ({"sea": 1, "boat": 1, "sunset": 0.5, "sun": 0.3}, "waves salt ships fish", 6),
    "slopes": ({"snow": 1, "mountain": 0.9, "sun": 0.5}, "cold skiing view boots", 1),
    "hike": ({"mountain": 1, "forest": 0.8, "sun": 0.5}, "view boots path tired", 9),
    "rainy": ({"city": 0.9, "rain": 1, "night": 0.3}, "umbrella cold street tired", 11),
    "evening": ({"city": 1, "night": 1, "sunset": 0.4}, "street lights music fish", 5),
}
TAGS = ["sea", "sun", "sand", "boat", "sunset", "snow", "mountain", "forest", "city", "rain"]
TAGS, PLACES = [*TAGS, "night"], ["south", "north", ""]
OPENINGS = ["again", "at last", "today", "early", "much"]


def photos(count: int, seed: int) -> pd.DataFrame:
    """Make up so many photos."""
    rng = np.random.default_rng(seed)
    rows = []
    for _ in range(count):
        chances, words, month = SCENES[rng.choice(list(SCENES))]
        seen = " and ".join(rng.choice(words.split(), 3, replace=False))
        caption = f"{rng.choice(OPENINGS)}, {seen}"
        tags = [tag for tag in TAGS if rng.random() < chances.get(tag, 0.02)]
        month, day = (month + rng.integers(-2, 3)) % 12 + 1, rng.integers(1, 29)
        place, caption = rng.choice(PLACES), caption if rng.random() < 0.8 else "no words"
        rows.append((caption, place, f"2024-{month:02}-{day:02}", ";".join(tags)))
    return pd.DataFrame(rows, columns=["caption", "place", "taken", "tags"])


photos(300, seed=0).to_csv("photos.csv", index=False)
photos(200, seed=1).to_csv("more.csv", index=False)

# %% [markdown]
# A cell of the column `tags` names all labels of its row. (Labels as columns of zeros and ones are
# fine too: `--labels sea,sun,sand`.)

# %%
# !head -n 4 photos.csv

# %% [markdown]
# ## Fit
# What a column holds is found out: here text, a category with gaps, and a date. A column that says
# nothing about labels, such as a number for each row, is better left out: `--drop id`. Everything
# else is chosen by itself, on rows that are held out for it. Those are 60 here, so that their score
# is off by some points either way.

# %%
# !spen fit photos.csv --labels tags

# %% [markdown]
# ## How good is it?
# Judge by rows that it has not seen. Each score comes with its rule.

# %%
# !spen evaluate photos.spen more.csv

# %% [markdown]
# Whether that is much depends on the table, so let scikit-learn's classifiers try the same:
# `spen compare photos.csv --labels tags`.

# %% [markdown]
# ## Label new rows
# `spen predict photos.spen FILE` writes a file; here it writes to the screen. A row needs not have
# labels.

# %%
# !spen predict photos.spen more.csv --out - | head -n 4

# %% [markdown]
# ## A page
# One file that needs no network: set labels by hand, and see the others answer.

# %%
# !spen report photos.spen --data more.csv --out photos.html

# %% [markdown]
# ## What others cannot
# The same model in Python. Somebody says that there is a boat in a photo without words. What else
# is there?

# %%
import spen

clf = spen.load("photos.spen")
photo = {"caption": ["no words"], "place": [None], "taken": ["2024-06-15"]}
for known in (None, {"boat": 1}, {"boat": 0, "sand": 1}):
    soft = clf.predict_proba(photo, known=known)[0]
    best = [f"{clf.label_names_[i]} {soft[i]:.0%}" for i in np.argsort(-soft)[:4]]
    print(f"{known or 'nothing'} known: {', '.join(best)}")

# %% [markdown]
# Which label should a person be asked about, so that the answer says most about the others?

# %%
for question in clf.next_question(photo, k=3)[0]:
    print(question)

# %% [markdown]
# And which tags of the table look wrong? The energy says how well each labelling fits.

# %%
table = pd.read_csv("more.csv")
tags = [[*filter(None, cell.split(";"))] for cell in table.pop("tags").fillna("")]
issues = clf.label_issues(table, tags, unseen=True, top=5)
print(issues)
print(table.iloc[issues.row[0]].to_dict(), tags[issues.row[0]])

# %% [markdown]
# ## The same in Python, from the start
# `X` may be a DataFrame, an array, a sparse matrix or a list of texts; `Y` lists of labels, or a
# matrix of zeros and ones.

# %%
table = pd.read_csv("photos.csv")
tags = [[*filter(None, cell.split(";"))] for cell in table.pop("tags").fillna("")]
again = spen.SPENClassifier(preset="fast", random_state=0).fit(table, tags)
print(again.predict_labels(pd.read_csv("more.csv").head(3)))

# %% [markdown]
# From here: all of [the classifier](../classifier.md), [tables](../tables.md) of every kind, how to
# tell it [what is known](known_labels.md), how to find [wrong labels](wrong_labels.md), or [an
# energy of your own](own_energy.md).
