package models

// OverrunAction says what follows where a worker says that a task's budget does not
// cover it (PROTOCOL_V5 §9.2).
type OverrunAction string

// What may follow.
const (
	// OverrunGiveUp ends the task.
	OverrunGiveUp OverrunAction = "give_up"
	// OverrunRaise gives it a larger budget and tries again.
	OverrunRaise OverrunAction = "raise"
	// OverrunSimplify tries once more and asks for a simpler version.
	OverrunSimplify OverrunAction = "simplify"
)

// OverrunActions lists what may follow.
func OverrunActions() []OverrunAction {
	return []OverrunAction{OverrunGiveUp, OverrunRaise, OverrunSimplify}
}

// Overrun is what follows where a budget does not cover a task.
type Overrun struct {
	Action OverrunAction `json:"action" swaggertype:"string" enums:"give_up,raise,simplify" example:"raise"`
	// MaxBudget bounds what the budget is raised to, in tokens; 0 is no bound but that it
	// becomes what the worker needs, or twice as much where it does not say.
	MaxBudget int64 `json:"max_budget,omitempty" example:"8000"`
} // @name BudgetOverrun
