package schedule

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/robfig/cron/v3"

	"comet/internal/input"
)

// anyValue is set in a field of a cron expression that is "*".
const anyValue = 1 << 63

// cronField is a field of a cron expression. If its values have names, these have three letters each and begin with that of min.
type cronField struct {
	name     string
	min, max int
	names    string
}

func cronFields() [5]cronField {
	return [...]cronField{
		{"minute", 0, 59, ""}, {"hour", 0, 23, ""}, {"day of the month", 1, 31, ""},
		{"month", 1, 12, "jan feb mar apr may jun jul aug sep oct nov dec"}, {"day of the week", 0, 6, "sun mon tue wed thu fri sat"},
	}
}

// parseCron returns the matcher of a cron expression, or errs.InvalidRequest with the field, its value and what it permits.
func parseCron(text string) (*cron.SpecSchedule, error) {
	values := strings.Fields(text)
	if len(values) != 5 || len(text) > maxCron || strings.ContainsAny(text, "=@") {
		return nil, input.Violated("/cron", "cron", "cron must have the five fields minute, hour, day of the month, month and day of the week, such as \"30 8 * * 1-5\", not %s", input.Quote(text))
	}
	var bits [5]uint64
	for i, f := range cronFields() {
		for part := range strings.SplitSeq(values[i], ",") {
			set, ok := f.parse(part)
			if !ok {
				return nil, input.Violated("/cron", "cron", "the %s of cron, %s, is not valid at %s: it must be %s, or *, ranges such as %d-%d, lists such as %d,%d, and steps such as */2", f.name, input.Quote(values[i]), input.Quote(part), f.permitted(), f.min+1, f.min+3, f.min+1, f.min+3)
			}
			bits[i] |= set
		}
	}
	return &cron.SpecSchedule{Location: time.Local, Second: 1, Minute: bits[0], Hour: bits[1], Dom: bits[2], Month: bits[3], Dow: bits[4]}, nil
}

// permitted describes the values of the field.
func (f cronField) permitted() string {
	out := fmt.Sprintf("%d to %d", f.min, f.max)
	if f.names != "" {
		out += fmt.Sprintf(" or %s to %s", f.names[:3], f.names[len(f.names)-3:])
	}
	if f.isWeek() {
		out += " (7 is Sunday, too)"
	}
	return out
}

func (f cronField) isWeek() bool { return f.max == 6 }

// parse returns the bits of a value, a range or a step.
func (f cronField) parse(text string) (bits uint64, ok bool) {
	text, step, stepped := strings.Cut(text, "/")
	low, high, ranged := strings.Cut(text, "-")
	first, last, every := f.min, f.max, 1
	if stepped {
		if every, ok = number(step); !ok || every < 1 || every > f.max {
			return 0, false
		}
	}
	if low == "?" { // the same in other dialects
		low, text = "*", "*"
	}
	if text == "*" && every == 1 {
		bits = anyValue
	}
	if text != "*" {
		if first, ok = f.value(low); !ok {
			return 0, false
		}
		switch {
		case ranged:
			if last, ok = f.value(high); !ok {
				return 0, false
			}
		case !stepped:
			last = first
		}
	}
	if f.isWeek() && last == 0 && first > 0 { // fri-sun
		last = 7
	}
	for n := first; n <= last; n += every {
		if f.isWeek() {
			bits |= 1 << (n % 7)
		} else {
			bits |= 1 << n
		}
	}
	return bits, first <= last
}

// value returns a value of the field, which is a number or a name.
func (f cronField) value(text string) (int, bool) {
	if i := strings.Index(f.names, strings.ToLower(text)); len(text) == 3 && i >= 0 && i%4 == 0 {
		return f.min + i/4, true
	}
	n, ok := number(text)
	return n, ok && n >= f.min && (n <= f.max || n == 7 && f.isWeek())
}

// number returns a number without a sign.
func number(text string) (int, bool) {
	n, err := strconv.ParseUint(text, 10, 16)
	return int(n), err == nil
}
