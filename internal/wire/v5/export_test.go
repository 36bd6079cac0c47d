package v5

// Segment is a segment of a message, for the tests outside the package.
type Segment = segment

// The segments.
const (
	SegmentMessage  = segmentMessage
	SegmentRoute    = segmentRoute
	SegmentType     = segmentType
	SegmentTask     = segmentTask
	SegmentPriority = segmentPriority
	SegmentState    = segmentState
	SegmentErr      = segmentErr
	SegmentDepth    = segmentDepth
	SegmentContext  = segmentContext
	SegmentBudget   = segmentBudget
	SegmentData     = segmentData
)

// Problem is one failed check.
type Problem = problem

// Router is a role without a meaning outside of the package.
const Router = router

// Has reports whether w is in the set.
func (s Warnings) Has(w Warnings) bool { return s.has(w) }

// Raw returns the value of a pair with its quotes.
func (p Pair) Raw() string { return p.raw }

// IsSystem reports whether a message of the type can be system traffic.
func (t Type) IsSystem() bool { return t.isSystem() }

// The warnings that have no meaning outside of the package.
const (
	DataTruncated = dataTruncated
	DepthMissing  = depthMissing
	QuoteOpen     = quoteOpen
)
