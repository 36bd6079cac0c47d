package api_test

import "strings"

// badWorkflowTexts breaks further rules of workflows; the text of each error names the value and the rule.
func badWorkflowTexts() []badInput {
	post := func(name, body, want, text string) badInput {
		return badInput{name: "workflow text: " + name, target: "/api/v1/workflows", body: body, want: want, text: text}
	}
	second := func(name, step, want, text string) badInput {
		return post(name, `{"workflow":{"tasks":[`+goodStep+`,`+step+`]}}`, "invalid-request /workflow/tasks/1"+want, text)
	}
	tool := func(name, arguments, want, text string) badInput {
		return second(name, `{"id":"t2","tool":"a:b","arguments":`+arguments+`}`, "/arguments"+want, text)
	}
	code := func(name, members, want, text string) badInput {
		return second(name, `{"id":"t2","type":"code_execution"`+members+`}`, want, text)
	}
	agent := func(name, members, want, text string) badInput {
		return second(name, `{"id":"t2","type":"agent_task"`+members+`}`, want, text)
	}
	config := func(name, config, want, text string) badInput {
		return post(name, `{"workflow":{"tasks":[`+goodStep+`]},"config":`+config+`}`, "invalid-request /config"+want, text)
	}
	return []badInput{
		second("an id that begins with a digit", `{"id":"1a","tool":"a:b"}`, "/id pattern", `not "1a"`),
		second("an id with a dot", `{"id":"a.b","tool":"a:b"}`, "/id pattern", `not "a.b"`),
		second("an id that is not ASCII", `{"id":"é","tool":"a:b"}`, "/id pattern", `not "é"`),
		second("an id with a line break", `{"id":"a\n","tool":"a:b"}`, "/id pattern", `not "a\n"`),
		second("an id that begins with a hyphen", `{"id":"-a","tool":"a:b"}`, "/id pattern", `not "-a"`),
		second("an id of 65 characters", `{"id":"`+strings.Repeat("x", 65)+`","tool":"a:b"}`, "/id pattern", "at most 63 letters"),
		second("the id of another step", `{"id":"t1","tool":"a:b"}`, "/id unique", `the id "t1" is already used by step 1`),
		second("an id of null", `{"id":null,"tool":"a:b"}`, "/id not_null", "must not be null"),
		second("a type in capitals", `{"id":"t2","type":"MCP_TOOL","tool":"a:b"}`, "/type enum", `not "MCP_TOOL"`),
		second("a type of a list", `{"id":"t2","type":[],"tool":"a:b"}`, "/type type", "string"),
		second("code of a tool", `{"id":"t2","tool":"a:b","code":"1"}`, "/code unexpected", "code is not allowed for the type mcp_tool"),
		second("a capability of a tool", `{"id":"t2","tool":"a:b","capability":"x"}`, "/capability unexpected", "capability is not allowed for the type mcp_tool"),
		second("an agent of a tool", `{"id":"t2","tool":"a:b","agent_id":"x"}`, "/agent_id unexpected", "agent_id is not allowed for the type mcp_tool"),
		second("a tool of a number", `{"id":"t2","tool":7}`, "/tool type", "string"),
		second("a negative timeout", `{"id":"t2","tool":"a:b","timeout_ms":-1}`, "/timeout_ms range", "not -1"),
		second("a timeout of half a millisecond", `{"id":"t2","tool":"a:b","timeout_ms":0.5}`, "/timeout_ms type", "integer"),
		second("a timeout in words", `{"id":"t2","tool":"a:b","timeout_ms":"30s"}`, "/timeout_ms type", "integer"),
		second("approve of a number", `{"id":"t2","tool":"a:b","approve":1}`, "/approve type", "true or false"),
		second("dependencies of a string", `{"id":"t2","tool":"a:b","depends_on":"t1"}`, "/depends_on type", "an array, not a string"),
		second("a dependency of a number", `{"id":"t2","tool":"a:b","depends_on":[1]}`, "/depends_on/0 type", "string"),
		second("a dependency on itself", `{"id":"t2","tool":"a:b","depends_on":["t2"]}`, "/depends_on/0 cycle", `the step "t2" depends on itself`),
		second("a dependency with a mistake", `{"id":"t2","tool":"a:b","depends_on":["t1","t3"]}`, "/depends_on/1 reference", `there is no step "t3"; did you mean "t1"?`),
		second("a member in capitals", `{"id":"t2","tool":"a:b","Arguments":{}}`, "/Arguments unknown_field", "arguments"),
		code("code of blanks", `,"code":" \n"`, "/code required", "code is required for the type code_execution"),
		code("code without code", ``, "/code required", "code is required for the type code_execution"),
		code("code of a capability", `,"code":"1","capability":"x"`, "/capability unexpected", "capability is not allowed for the type code_execution"),
		code("code of an agent", `,"code":"1","agent_id":"x"`, "/agent_id unexpected", "agent_id is not allowed for the type code_execution"),
		code("code with a budget", `,"code":"1","budget":5`, "/budget unexpected", "budget is not allowed for the type code_execution"),
		code("code over the limit", `,"code":"`+strings.Repeat("x", 102_401)+`"`, "/code max", "code must have at most 102400 bytes, not 102401"),
		code("code of a list", `,"code":["return 1"]`, "/code type", "string"),
		agent("no agent", ``, "/capability required", "capability or agent_id is required for the type agent_task"),
		agent("an agent with a tool", `,"agent_id":"x","tool":"a:b"`, "/tool unexpected", "tool is not allowed for the type agent_task"),
		agent("an agent with code", `,"agent_id":"x","code":"1"`, "/code unexpected", "code is not allowed for the type agent_task"),
		agent("a budget of nothing", `,"agent_id":"x","budget":0`, "/budget min", "budget must be at least 1 token, not 0"),
		agent("a budget of less", `,"agent_id":"x","budget":-5`, "/budget min", "not -5"),
		agent("a budget of a fraction", `,"agent_id":"x","budget":1.5`, "/budget type", "integer"),
		tool("arguments of a string", `"x"`, " object", `not "x"`),
		tool("arguments of a number", `1`, " object", "not 1"),
		tool("a reference with a mistake", `{"a":["","x $t3.result"]}`, "/a/1 reference", "did you mean $t1.result?"),
		tool("an output of nothing", `{"a":"$OUTPUT[zzz]"}`, "/a reference", `"$OUTPUT[zzz]" refers to a step that does not exist`),
		tool("a reference in an escaped member", `{"a/b~c":"$x.result"}`, "/a~1b~0c reference", "refers to a step that does not exist"),
		tool("a reference with an escaped sign", `{"a":"\u0024x.result"}`, "/a reference", "refers to a step that does not exist"),
		tool("a reference without result", `{"a":"$t1.output"}`, "/a reference", `"$t1.output" is not a reference`),
		tool("a reference to itself", `{"a":{"b":{"c":"$t2.result"}}}`, "/a/b/c cycle", `the step "t2" refers to its own result`),
		config("an option of a number", `{"on_error":1}`, "/on_error type", "string"),
		config("approvals in capitals", `{"approvals":"WRITE"}`, "/approvals oneof", "destructive"),
		config("a negative time", `{"task_timeout_ms":-1}`, "/task_timeout_ms min", "1"),
		config("time in words", `{"task_timeout_ms":"1m"}`, "/task_timeout_ms type", "integer"),
		post("half a document", `{"workflow":{"tasks":[`, "malformed-json /workflow/tasks syntax", "ends before it is complete"),
		post("two documents", `{"workflow":{"tasks":[`+goodStep+`]}}{}`, "malformed-json - trailing_data", "more data after the JSON value"),
		post("a member twice", `{"workflow":{"tasks":[`+goodStep+`]},"workflow":{"tasks":[]}}`, "malformed-json /workflow duplicate_key", "workflow is given twice"),
		post("an argument twice", `{"workflow":{"tasks":[{"id":"a","tool":"x:y","arguments":{"a":1,"a":2}}]}}`, "malformed-json /workflow/tasks/0/arguments/a duplicate_key", "arguments.a is given twice"),
		post("a cycle through a reference", `{"workflow":{"tasks":[{"id":"a","tool":"x:y","depends_on":["c"]},{"id":"b","tool":"x:y","arguments":{"v":"$a.result"}},{"id":"c","tool":"x:y","depends_on":["b"]}]}}`,
			"invalid-request /workflow/tasks/0/depends_on cycle", "a → c → b → a"),
	}
}
