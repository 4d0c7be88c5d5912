"""Options of the parameter update: how large, how steady, how guarded."""

from __future__ import annotations

from typing import Literal

from ostinato.config.declaration import Conflict, Options, option

_MOMENTS = "the moments kept so far were collected with it"
_AMSGRAD = ("adam", "adamw")
_NO_BETAS = ("rms-prop",)
_NO_EPSILON = ("lion",)

# The same defaults twice: in the declaration, and where a value that has no effect is told from one that nobody chose.
_EPSILON_EXPONENT, _BETA_1, _BETA_2 = -7, 0.9, 0.999


class OptimizerOptions(Options):
    """How the model's numbers are moved after each batch."""

    optimizer: Literal["adam", "adamw", "adamax", "nadam", "adabelief", "lion", "rms-prop"] = option(
        "adam",
        group="optimizer",
        fixed=True,
        why_fixed="the moments kept so far belong to it",
        before="adam",
        help="""The method that turns mistakes into changes of the model. Start with adam unless you can compare two
        runs. adam is the one nearly everybody uses: it chooses a step for each number of the model by itself. adamw is
        adam for those who want weight_decay: it pulls every number towards zero alike. adamax sizes its steps by the
        largest change of late, where adam takes an average; it is steady where a few pictures are very different from
        the rest. nadam looks one step ahead and is often a little quicker in the beginning. adabelief takes large steps
        where changes come as expected and small ones where they surprise; it needs an epsilon_exponent of about -16,
        and hardly moves with the usual one. lion moves every number by the same amount and needs the least memory;
        give it a third to a tenth of adam's learning_rate, and do not use it with batches of a few faces. rms-prop is
        an older method that follows each batch at once, without the swing of the batches before; it needs as little
        memory as lion, and is rougher than adam.""",
    )
    learning_rate: float = option(
        5e-05,
        group="optimizer",
        ge=1e-10,
        le=100.0,
        usual=(1e-06, 1e-04),
        help="""How large a step each update makes. Larger learns faster and is rougher; too large and the loss jumps
        or becomes not-a-number. 5e-05 suits most runs; many lower it to 1e-05 towards the end for finer detail. Do
        not raise it to save time on a model that already looks good. lion wants a third to a tenth of it.""",
    )
    epsilon_exponent: int = option(
        _EPSILON_EXPONENT,
        group="optimizer",
        ge=-20,
        le=0,
        step=1,
        help="""A small number that keeps the optimizer from dividing by nothing is 10 to the power of this: -7 means
        0.0000001. Raise it (to -5, say) if the loss becomes not-a-number, with mixed precision above all. Set it to
        about -16 for adabelief, which adds it up and takes tiny steps with more. lion has no use for it. Otherwise
        leave it alone.""",
    )
    save_optimizer: Literal["always", "exit", "never"] = option(
        "always",
        group="optimizer",
        help="""When to save what the optimizer has learned about the model. That is twice the size of the model for
        most optimizers, once for lion and rms-prop, and three times with ada_amsgrad. always: with every save; costs
        the disk space and, in the background, the time to write it, and the run continues exactly, even after a power
        cut. exit: only when training is ended properly; saves in between write the model alone, but after a power cut
        the run goes on with an older state of the optimizer, or none, and the loss is rougher for some hundred
        iterations. never: nothing is stored, and every session starts with a fresh optimizer, whose first steps are
        large and follow single batches; that can undo fine detail. Use exit or never only if disk space or time for
        saving is short.""",
    )
    gradient_clipping: Literal["none", "norm", "global_norm", "value", "autoclip"] = option(
        "none",
        group="clipping",
        help="""Limit how much a single batch may change the model. norm: limits the length of the change for each
        layer's numbers by themselves. global_norm: limits the length of the whole change. value: cuts each number by
        itself. autoclip: finds the limit from the changes seen so far. It helps when the loss has spikes or becomes
        not-a-number. Leave it at none for a run that is steady; it can slow learning down.""",
    )
    clipping_value: float = option(
        1.0,
        group="clipping",
        ge=0.0,
        le=10.0,
        help="""The limit for gradient_clipping. For autoclip it is a tenth of the percentile: 1 means that a change
        is cut to the size below which a tenth of the last ones were. Smaller is stricter. Without gradient_clipping
        it does nothing.""",
    )
    autoclip_history: int = option(
        10000,
        group="clipping",
        ge=0,
        le=100000,
        step=1000,
        help="""How many of the last changes autoclip remembers; 0 remembers all. A long memory is steadier, a short
        one follows the run. Only for gradient_clipping autoclip.""",
    )
    weight_decay: float = option(
        0.0,
        group="updates",
        ge=0.0,
        le=1.0,
        help="""Pull the numbers of the model a little towards zero with every update, which keeps a model from
        learning few pictures by heart. Biases and other numbers that stand alone are left out. Typical values are
        0.0001 to 0.01; 0.004 is a good start with adamw. adamw, adabelief and lion pull at every number alike; the
        others mix the pull into the changes, so that it is weak where changes are large. Leave it at 0 unless you have
        few pictures and see that new ones are much worse than those trained on.""",
    )
    gradient_accumulation: int = option(
        1,
        group="updates",
        ge=1,
        le=100,
        step=1,
        help="""Collect the changes of this many batches before the model is changed once. It acts like a larger batch
        without needing its memory, and each update takes as many times longer. Leave it at 1 if the batch you want
        fits into memory.""",
    )
    ada_beta_1: float = option(
        _BETA_1,
        group="optimizer specific",
        fixed=True,
        why_fixed=_MOMENTS,
        ge=0.0,
        lt=1.0,
        help="""How much of its earlier direction the optimizer keeps: 0.9 averages over about ten updates. rms-prop
        keeps none and has no use for it. Leave it alone unless you know the method; 0.5 is what older models were
        trained with.""",
    )
    ada_beta_2: float = option(
        _BETA_2,
        group="optimizer specific",
        fixed=True,
        why_fixed=_MOMENTS,
        ge=0.0,
        lt=1.0,
        help="""How long the optimizer remembers how large the changes were: 0.999 averages over about a thousand
        updates. For lion it is how long the direction is remembered, and 0.99 is what its inventors used. rms-prop
        always averages over about a hundred and has no use for it. Leave it alone unless you know the method; 0.99 is
        what older models were trained with.""",
    )
    ada_amsgrad: bool = option(
        False,
        group="optimizer specific",
        fixed=True,
        why_fixed=_MOMENTS,
        help="""Let the steps of adam and adamw never grow again after they have shrunk. It is steadier in theory, needs
        memory for one more copy of the model, and seldom gives better faces. The other optimizers have no such form.
        Leave it off if memory is short.""",
    )

    def conflicts(self) -> list[Conflict]:
        """A limit of zero would cut every change to nothing."""
        if self.gradient_clipping in ("norm", "global_norm", "value") and self.clipping_value == 0:
            message = (
                f"gradient_clipping {self.gradient_clipping} with the limit 0 lets nothing through, so the model would "
                "never learn; give a limit above 0, or set gradient_clipping to none"
            )
            return [Conflict(("clipping_value", "gradient_clipping"), message)]
        return []

    def idle(self) -> list[Conflict]:
        """Clipping settings without clipping, and settings of other optimizers than the chosen one."""
        remarks = []
        if self.gradient_clipping == "none" and self.clipping_value != 1.0:
            remarks.append(Conflict(("clipping_value", "gradient_clipping"), "gradient_clipping is none"))
        if self.gradient_clipping != "autoclip" and self.autoclip_history != 10000:
            remarks.append(Conflict(("autoclip_history", "gradient_clipping"), "gradient_clipping is not autoclip"))
        not_used = {
            "epsilon_exponent": self.optimizer in _NO_EPSILON and self.epsilon_exponent != _EPSILON_EXPONENT,
            "ada_beta_1": self.optimizer in _NO_BETAS and self.ada_beta_1 != _BETA_1,
            "ada_beta_2": self.optimizer in _NO_BETAS and self.ada_beta_2 != _BETA_2,
            "ada_amsgrad": self.optimizer not in _AMSGRAD and self.ada_amsgrad,
        }
        for name, found in not_used.items():
            if found:
                remarks.append(Conflict((name, "optimizer"), f"{self.optimizer} has no use for it"))
        return remarks
