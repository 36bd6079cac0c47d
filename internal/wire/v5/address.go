package v5

import (
	"strconv"
	"strings"

	"comet/internal/wire/v5/codes"
)

// Role is the kind of an address (PROTOCOL_V5 §2.1).
type Role byte

// The roles, and the addresses without a number.
const (
	Orchestrator Role = 'O'
	Worker       Role = 'W'
	router       Role = 'R'
	Group        Role = 'G'
	// User is a user who requests work from O1.
	User Role = 'U'
	// AllAgents is the destination *.
	AllAgents Role = '*'
	// AllWorkers is the destination W*.
	AllWorkers Role = 'w'
)

// maxSub is the longest name of a sub-agent: maxAddress without W1 and the dot.
const maxSub = maxAddress - 3

// Address is one end of a route (§2.2), the zero Address where Parse could not parse it.
// Addresses can be compared with == and hold no pointer.
type Address struct {
	Role Role
	// Number is 1 to 9, of a worker 1 to 99, and 0 for User, AllAgents and AllWorkers.
	Number uint8
	sub    [maxSub]byte
}

// WorkerAddress returns the address of the n-th worker, from 1: W1 to W99, then W1.1 to W99.1,
// W1.2 and so on.
func WorkerAddress(n int) Address {
	a := Address{Role: Worker, Number: uint8((n-1)%99) + 1}
	if round := (n - 1) / 99; round > 0 {
		copy(a.sub[:], strconv.Itoa(round))
	}
	return a
}

// WorkerNumber returns the n of WorkerAddress; ok is false for an address that it never returns.
func (a Address) WorkerNumber() (n int, ok bool) {
	if a.Role != Worker || a.Number == 0 {
		return 0, false
	}
	round := 0
	if sub := a.Sub(); sub != "" {
		var err error
		if round, err = strconv.Atoi(sub); err != nil {
			return 0, false
		}
	}
	n = round*99 + int(a.Number)
	return n, WorkerAddress(n) == a
}

// ParseAddress parses an address such as O1, W42, O1.W1, W*, * or User. The error is an *Error
// with E13.
func ParseAddress(text string) (Address, error) {
	a, problem := parseAddress(text)
	if problem != "" {
		return Address{}, newError(codes.E13, "", quote(text)+" "+problem)
	}
	return a, nil
}

// parseAddress returns an address, or what is wrong with it.
func parseAddress(text string) (a Address, problem string) {
	if len(text) > maxAddress {
		return Address{}, "is longer than 10 characters"
	}
	if len(text) < 2 || text[1]-'0' > 9 {
		return parseNamedAddress(text)
	}
	a = Address{Role: Role(text[0])}
	limit := a.Role.limit()
	if limit == 0 {
		return parseNamedAddress(text)
	}
	a.Number = text[1] - '0'
	rest := text[2:]
	if rest != "" && rest[0]-'0' <= 9 && a.Number > 0 {
		a.Number = a.Number*10 + rest[0] - '0'
		rest = rest[1:]
	}
	if a.Number == 0 || a.Number > limit {
		return Address{}, "has a number that is not 1 to " + strconv.Itoa(int(limit))
	}
	if rest == "" {
		return a, ""
	}
	if rest[0]-'0' <= 9 {
		return Address{}, numberProblem(a.Role, text[1:])
	}
	if rest[0] != '.' || !isAlphanumeric(rest[1:]) || len(rest) > maxSub+1 {
		return Address{}, "has more after its number than a dot with letters and digits"
	}
	copy(a.sub[:], rest[1:])
	return a, ""
}

// numberProblem returns what is wrong with a number above the limit of its role. The worker after
// W99 is W1.1.
func numberProblem(role Role, number string) string {
	problem := "has a number that is not 1 to " + strconv.Itoa(int(role.limit()))
	if n, err := strconv.Atoi(number); err == nil && role == Worker {
		problem += "; the worker with the number " + number + " is " + WorkerAddress(n).String()
	}
	return problem
}

func parseNamedAddress(text string) (a Address, problem string) {
	switch text {
	case "*":
		return Address{Role: AllAgents}, ""
	case "W*":
		return Address{Role: AllWorkers}, ""
	case "User":
		return Address{Role: User}, ""
	}
	return Address{}, "must be an id such as O1, W42, R1, G1 or W1.2, or User, * or W*"
}

// limit returns the highest number of a role, 0 for a role without numbers.
func (r Role) limit() uint8 {
	switch r {
	case Orchestrator, router, Group:
		return 9
	case Worker:
		return 99
	}
	return 0
}

// IsMulticast reports whether the address is that of several agents: *, W* and G1 are destinations
// only.
func (a Address) IsMulticast() bool {
	return a.Role == AllAgents || a.Role == AllWorkers || a.Role == Group
}

// Sub returns the name of the sub-agent after the dot, "" for none.
func (a Address) Sub() string { return strings.TrimRight(string(a.sub[:]), "\x00") }

// String returns the address as it is written, "" for the zero Address.
func (a Address) String() string { return string(a.append(nil)) }

func (a Address) append(line []byte) []byte {
	switch a.Role {
	case 0:
		return line
	case AllAgents:
		return append(line, '*')
	case AllWorkers:
		return append(line, "W*"...)
	case User:
		return append(line, "User"...)
	}
	line = strconv.AppendUint(append(line, byte(a.Role)), uint64(a.Number), 10)
	if a.sub[0] == 0 {
		return line
	}
	return append(append(line, '.'), a.Sub()...)
}

func isAlphanumeric(text string) bool {
	for i := range len(text) {
		if c := text[i]; c-'0' > 9 && c|0x20-'a' > 25 {
			return false
		}
	}
	return text != ""
}
