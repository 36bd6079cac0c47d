package models

// MaxParallel is how many workers one task may be given to at a time.
const MaxParallel = 16

// Aggregate says what becomes of the results of workers that did the same task
// (PROTOCOL_V5 §4.2: AGGREGATE; §5.1: top N for parallel).
type Aggregate string

// The ways to put results together.
const (
	// AggregateFirst takes the first success; the others are taken back.
	AggregateFirst Aggregate = "first"
	// AggregateAll wants a success of each, and lists them.
	AggregateAll Aggregate = "all"
	// AggregateMajority takes the result that more than half of the workers that were
	// asked for have given, byte for byte but for white space at its ends.
	AggregateMajority Aggregate = "majority"
	// AggregateMerge waits for all and makes one of those that succeeded: objects are
	// united, lists are put behind each other, and texts too, a line break between them.
	AggregateMerge Aggregate = "merge"
)

// Aggregates lists the ways to put results together.
func Aggregates() []Aggregate {
	return []Aggregate{AggregateFirst, AggregateAll, AggregateMajority, AggregateMerge}
}

// Parallel has a task done by several workers at a time.
type Parallel struct {
	// Workers is how many, 2 to MaxParallel; where fewer are free, it is those.
	Workers int `json:"workers" example:"3"`
	// Aggregate is what becomes of their results.
	Aggregate Aggregate `json:"aggregate" swaggertype:"string" enums:"first,all,majority,merge" example:"majority"`
}
