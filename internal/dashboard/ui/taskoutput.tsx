// The output and the log of a task, which are followed while the task runs.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { Problem, problemOf, query, type Schemas } from "./api";
import { AsCurl, CopyButton, Empty, Panel, ProblemNotice } from "./components";
import { count } from "./format";

/** most is how many characters of an output are shown: its end. */
const most = 200_000;

type Which = "result" | "log";

export function Output({ task, path }: { task: Schemas["TaskDetail"]; path: string }) {
  const [which, setWhich] = useState<Which>("result");
  const open = task.state === "new" || task.state === "running";
  const size = which === "log" ? task.log.bytes : task.output.bytes;
  const from = useMemo(() => Math.max(0, size - most), [open, which]); // it must not move while the output is followed
  const [text, problem] = useStream(open ? query(path + "/output", { stream: which, follow: true, from: from || undefined }) : query(path + "/output", { stream: which }), open ? "" : `bytes=${from}-`, size);
  const box = useRef<HTMLPreElement>(null);
  const atEnd = useRef(true);
  useEffect(() => {
    if (open && atEnd.current && box.current) box.current.scrollTop = box.current.scrollHeight;
  }, [text, open]);
  return (
    <Panel
      title={open ? "Output, live" : "Output"}
      actions={
        <>
          <div class="segments" role="group" aria-label="Which output">
            {(["result", "log"] as Which[]).map((w) => (
              <button key={w} aria-pressed={w === which} onClick={() => setWhich(w)}>
                {w === "log" ? "Log" : "Result"}
              </button>
            ))}
          </div>
          {text && <CopyButton text={text} />}
          <AsCurl calls={[{ path: query(path + "/output", { stream: which, follow: open }) }]} />
        </>
      }
    >
      {problem && <ProblemNotice problem={problem} />}
      {from > 0 && <p class="faint">The first {count(from)} bytes are left out.</p>}
      {text ? (
        <pre
          class="code"
          ref={box}
          tabIndex={0}
          role="region"
          aria-label={which === "log" ? "Log" : "Result"}
          onScroll={(e) => (atEnd.current = e.currentTarget.scrollTop + e.currentTarget.clientHeight > e.currentTarget.scrollHeight - 24)}
        >
          {text}
        </pre>
      ) : (
        <Empty icon="clock" title={open ? "No output yet" : which === "log" ? "The agent sent no log" : "The task has no output"} />
      )}
    </Panel>
  );
}

/** useStream returns the text of a response as far as it has arrived; of a long one its end. */
function useStream(path: string, range: string, size: number): [string, Problem | undefined] {
  const [text, setText] = useState("");
  const [problem, setProblem] = useState<Problem>();
  const wanted = range === "" || size > 0; // a range of an empty output does not exist
  useEffect(() => {
    setText("");
    setProblem(undefined);
    if (!wanted) return;
    const stop = new AbortController();
    let all = "";
    let timer: ReturnType<typeof setTimeout> | undefined;
    const paint = () => {
      timer = undefined;
      setText(all);
    };
    const read = async () => {
      const response = await fetch(path, { signal: stop.signal, headers: range ? { Range: range } : {} });
      if (!response.ok || !response.body) throw await problemOf(response);
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
      for (;;) {
        const { done, value } = await reader.read();
        if (done) break;
        all = (all + value).slice(-most);
        timer ??= setTimeout(paint, 100);
      }
    };
    read().catch((thrown) => {
      if (!stop.signal.aborted) setProblem(Problem.of(thrown));
    });
    return () => {
      stop.abort();
      clearTimeout(timer);
    };
  }, [path, wanted]);
  return [text, problem];
}
