"""What is stated of numbers: a guard's words about losses, gradients, scales and speed."""

from functools import partial

from runner.rootcause.statements.statement import IS, Statement

_number = partial(Statement, layer="metrics")
_NOT_FINITE = r"(?:non-?finite|not finite|nans?|inf(?:inite|inity|s)?)"
_SUBJECT = (
    r"(?:loss(?:es)?|grad(?:ient)?s?|norm|weights?|param(?:eter)?s?|activations?|logits|outputs?)"
)

NUMBERS: tuple[Statement, ...] = (
    _number(
        rf"\b{_NOT_FINITE} (?:\w+ ){{0,2}}{_SUBJECT}\b.{{0,60}}\b(?:stopp?(?:ed|ing)?|abort(?:ed|ing)?|exit(?:ed|ing)?|detected"
        rf"|found"
        r"|encountered|terminat(?:ed|ing)|halt(?:ed|ing)?|kill(?:ed|ing)?)\b"
        rf"|\b{_SUBJECT}\b.{{0,40}}\b(?:is|are|became|becomes|contains?|has|have|went|turned|=+)(?: to| now| all)? {_NOT_FINITE}\b"
        rf"(?:.{{0,60}}\b(?:stopp?(?:ed|ing)?|abort(?:ed|ing)?|exit(?:ed|ing)?|terminat(?:ed|ing)|halt(?:ed|ing)?)\b|\W*$)"
        rf"|\b(?:exploded|diverged|blew up)\b.{{0,20}}\b{_NOT_FINITE}\b"
        rf"|\b(?:detected|found|encountered|got) (?:an? )?{_NOT_FINITE}s?\b.{{0,40}}\b{_SUBJECT}\b",
        "nan_loss",
        sample="guard: non-finite loss on rank 4 at step 8812, stopping",
        near="guard: loss is checked for non-finite values",
    ),
    _number(
        r"\bloss[ _-]?scal\w*\b.{0,40}\b(?:dropp?ed below|fell below|is below|at (?:its |the )?(?:minimum|floor)|reached (?:its "
        r"|the )?"
        r"(?:minimum|floor|lower (?:limit|bound))|underflow\w*|too (?:small|low))\b",
        "loss_scale_floor",
        sample="amp: the loss scale dropped below 1e-4",
        near="amp: the loss scale is 65536",
    ),
    _number(
        rf"\b(?P<many>\d+) (?:consecutive|successive) (?:\w+ )?(?:updates?|steps?|iterations?|batches) {IS}skipped\b"
        r"|\bskipped (?P<many2>\d+) (?:\w+ )?(?:updates?|steps?|iterations?|batches) in a row\b"
        r"|\b(?P<many3>\d+) (?:updates?|steps?|iterations?|batches) in a row (?:were )?skipped\b",
        "skipped_steps",
        sample="amp: 20 consecutive updates were skipped",
        near="amp: 1 update was skipped",
    ),
    _number(
        r"\b(?:run|training|loss|model|optimization) (?:has |is |was )?(?:diverged|diverging|diverges|blown up|blew up|exploded"
        r"|exploding)\b"
        r"|\bdivergence (?:was |is )?detected\b",
        "divergence",
        sample="guard: the loss is far above its mean, the run diverged",
        near="guard: the loss is at its mean",
    ),
    _number(
        r"\bloss spike (?:was |is )?(?:detected|found|at step|of)\b|\bspike (?:was "
        r"|is )?(?:detected )?in (?:the )?(?:training )?loss\b",
        "loss_spike",
        sample="guard: loss spike at step 88120: 7.91 where 2.31 is usual",
        near="guard: loss spike check passed",
    ),
    _number(
        r"\bgrad\w*[ _-]?norm\b.{0,60}\b(?:\d[\d.]* ?x|times) (?:the |its )?(?:\w+ )?(?:average|mean|median|usual|normal"
        r"|baseline)\b"
        r"|\bgrad\w*[ _-]?norm (?:spike|explosion|has exploded|exploded)\b|\bgradients? (?:explosion|exploded|is exploding"
        r"|are exploding)\b",
        "grad_norm_spike",
        sample="guard: gradient norm 812 is 90x the running average",
        near="guard: gradient norm 1.2",
    ),
    _number(
        r"\b(?:step|iteration|batch)[ _](?:time|duration)\b\D{0,12}(?P<slow>\d[\d.]*) ?(?:s|sec\w*|ms)\b.{0,20}\b(?:vs\.?|versus"
        r"|instead of"
        r"|expected|baseline|median|usual(?:ly)?|where)\D{0,16}(?P<usual>\d[\d.]*)"
        r"|\b(?:rank|node|host|gpu|worker)\S{0,4} \S{1,20} (?:is|was) (?P<slow2>\d[\d.]*) ?(?:x|times) slower\b"
        r"|\b(?:throughput|speed|tokens/s\w*|samples/s\w*|mfu|tflops)\b.{0,40}\b(?:has )?(?:dropped|fell|fallen|decreased"
        r"|degraded|collapsed)"
        r"\b|\bstraggler (?:was |is )?(?:detected|found)\b",
        "throughput_drop",
        sample="watch: step time 14.2 s, usually 3.1 s",
        near="watch: step time 3.2 s, usually 3.1 s",
    ),
    _number(
        r"\bloss (?:right )?(?:after|since) (?:the )?(?:restart|resum\w+|restore|reload)\b.{0,40}\b(?:differs|mismatch\w*"
        r"|does not match"
        r"|jumped|higher|instead of|deviates)\b|\bresum\w+ (?:loss|run)\b.{0,30}\b(?:differs|does not match|mismatch\w*"
        r"|deviates)\b",
        "resume_mismatch",
        sample="check: loss after the restart is 5.8 and differs from 2.3",
        near="check: loss after the restart is 2.3",
    ),
    _number(
        r"\boverfitting (?:was |is )?(?:detected|suspected)\b|\bval\w*[ _]loss\b.{0,20}\b(?:has )?(?:increas\w+|risen|gone up"
        r"|rises)"
        r" (?:for|in|over) (?:the last )?(?P<many>\d+) (?:\w+ )?(?:epochs|evaluations|checks)\b",
        "validation_divergence",
        sample="watch: validation loss has risen for 5 epochs",
        near="watch: validation loss has fallen for 5 epochs",
    ),
    _number(
        r"\b(?:training|loss) (?:has |is )?(?:plateaued|stagnat(?:ed|es|ing)|(?:been )?stuck (?:at|around) \d)",
        "plateau",
        sample="watch: training has plateaued",
        near="watch: ReduceLROnPlateau is on",
    ),
)
