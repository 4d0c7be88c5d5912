"""The classification of a recognition run: margins, and the class centres."""

from __future__ import annotations

from typing import Literal

from ostinato.config.declaration import Options, option
from ostinato.config.recognition_model import SHAPE


class RecognitionHeadOptions(Options):
    """The classification that the network is trained with: margins, and how the class centres are kept."""

    scale: float = option(
        64.0,
        group="margin",
        gt=0.0,
        le=1000.0,
        usual=(8.0, 64.0),
        help="""By how much the similarities are multiplied before the classes compete. 64 is right for large sets. For
        a few hundred people or fewer take 16 with a margin of 0.2: with 64 training stays behind for long.""",
    )
    m1: float = option(
        1.0,
        group="margin",
        gt=0.0,
        le=4.0,
        help="""A factor on the angle between a face and its class (SphereFace). Leave it at 1 unless you compare with
        a model that has it.""",
    )
    m2: float = option(
        0.5,
        group="margin",
        ge=0.0,
        le=1.5,
        help="""An angle in radians that is added between a face and its class (ArcFace), so that training demands more
        than it has to. 0.5 is the published value; 0.2 suits small sets. For CosFace set it to 0, and m3 to 0.4.""",
    )
    m3: float = option(
        0.0,
        group="margin",
        ge=-1.0,
        le=1.0,
        help="""What is taken off the similarity of a face to its class (CosFace): 0.4 is the published value, with m2
        at 0. It can be used together with the others.""",
    )
    interclass_threshold: float = option(
        0.0,
        group="margin",
        ge=0.0,
        lt=1.0,
        help="""Other classes whose similarity is above this do not count, because with dirty data they are probably
        the same person under another name. 0 switches it off; 0.4 was published for sets with many wrong labels. Do not
        use it on clean data.""",
    )
    gradient: Literal["exact", "straight_through"] = option(
        "exact",
        group="margin",
        help="""How the angle margin passes changes back. exact is the true derivative, with which the published ArcFace
        results were made. straight_through is what InsightFace's training does since December 2022. They do not differ
        for CosFace. Change it only to repeat a run of that program.""",
    )
    wrap: Literal["none", "easy", "linear"] = option(
        "linear",
        group="margin",
        help="""What happens with an angle that the margin would push beyond a half turn. linear goes on downhill, as in
        the published results. none lets the similarity rise again. easy gives faces no margin that are further away
        than a right angle. Leave it alone unless you compare.""",
    )
    sampling_rate: float = option(
        1.0,
        group="classes",
        ge=0.0,
        le=1.0,
        help="""The share of the classes that takes part in each update. The classes of the batch always do; the rest is
        drawn at random. 1 is best for up to about a million people; 0.1 to 0.3 costs far less memory and time with more
        of them and is hardly worse. 0 takes the classes of the batch alone. Below some thousand people it changes
        little.""",
    )
    sub_centres: int = option(
        1,
        group="classes",
        fixed=True,
        why_fixed=SHAPE,
        ge=1,
        le=16,
        help="""How many centres each person has. 3 lets wrong pictures gather at a centre of their own, where they can
        be found and thrown out; that is for cleaning a set, and the clean set is then trained with 1. It needs so many
        times the memory.""",
    )
    update: Literal["frozen", "dense_lazy"] = option(
        "frozen",
        group="classes",
        fixed=True,
        why_fixed="the class centres were trained with it",
        help="""What happens to classes that take no part in an update. frozen: nothing, as in the published results
        before July 2022. dense_lazy: what a common optimizer would do to them (they coast and decay), computed when
        they are next needed; it equals InsightFace's training since then. With sampling_rate 1 they are the same.""",
    )
