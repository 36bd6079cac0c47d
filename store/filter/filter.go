// Package filter builds WHERE clauses with placeholders.
package filter

import (
	"strings"
	"time"
)

// Clause is a WHERE clause whose terms must all apply. The zero value has none.
type Clause struct {
	Args  []any // of the placeholders
	terms []string
}

// And adds a term.
func (c *Clause) And(term string, args ...any) {
	c.terms, c.Args = append(c.terms, term), append(c.Args, args...)
}

// Equal adds the equality of a column and a value unless the value is "".
func (c *Clause) Equal(column, value string) { c.Optional(column+" = ?", value) }

// Optional adds a term with one value unless the value is "".
func (c *Clause) Optional(term, value string) {
	if value != "" {
		c.And(term, value)
	}
}

// Time adds a term with one time unless it is the zero value.
func (c *Clause) Time(term string, at time.Time) {
	if !at.IsZero() {
		c.And(term, at)
	}
}

// Prefix adds that a column starts with a value, in bytes, unless the value is "".
func (c *Clause) Prefix(column, value string) {
	if value != "" {
		c.And(column+" BETWEEN ? AND ?", value, value+"\U0010FFFF")
	}
}

// SQL returns the clause, "" without a term.
func (c *Clause) SQL() string {
	if len(c.terms) == 0 {
		return ""
	}
	return " WHERE " + c.Terms()
}

// Terms returns the terms as one, for another clause.
func (c *Clause) Terms() string { return strings.Join(c.terms, " AND ") }

// In returns the placeholders of an IN list and their arguments. The planner may look at the values,
// so it is for few.
func In[T any](values []T) (string, []any) {
	args := make([]any, len(values))
	for i, v := range values {
		args[i] = v
	}
	return "(?" + strings.Repeat(", ?", len(values)-1) + ")", args
}
