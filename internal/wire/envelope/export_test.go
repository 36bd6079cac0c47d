package envelope

// Exported for the tests of package envelope_test.
const (
	MaxAgentType = maxAgentType
	MaxDepth     = maxDepth
	MaxExitCode  = maxExitCode
	MaxStep      = maxStep
)

// ParseRange is parseRange.
var ParseRange = parseRange
