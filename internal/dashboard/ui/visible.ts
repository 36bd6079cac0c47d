// Texts of agents and tools can contain characters that a reader cannot see, or that reorder text. They are shown as escapes.
import { Fragment, options } from "preact";

const escape = (c: string) => "\\u{" + c.codePointAt(0)!.toString(16) + "}";

/** visible writes characters that cannot be seen, or that reorder text, as escapes. */
export const visible = (text: string) => text.replace(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Default_Ignorable_Code_Point}]/gu, (c) => (c === "\n" || c === "\t" ? c : escape(c)));

/** shown is visible for texts that are not compared: it leaves line ends, and the joiners of emoji and of Arabic letters. */
export const shown = (text: string) => text.replace(/(?![\n\t\r]|(?<=\p{Extended_Pictographic})\ufe0f|(?<=[\p{Extended_Pictographic}\p{Emoji_Modifier}]\ufe0f?)\u200d(?=\p{Extended_Pictographic})|(?<=\p{Script=Arabic})\u200c(?=\p{Script=Arabic}))[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Default_Ignorable_Code_Point}]/gu, escape);

const texts = (children: any): any => (typeof children === "string" ? shown(children) : Array.isArray(children) ? children.map(texts) : children);

// Every text of the page passes here, and the texts of its attributes that a reader sees. The values of fields do not.
const next = options.vnode;
options.vnode = (node) => {
  const props = node.props as Record<string, any>;
  if (typeof node.type === "string") {
    for (const name of ["title", "aria-label", "aria-description", "aria-valuetext", "placeholder"]) if (typeof props[name] === "string") props[name] = shown(props[name]);
  }
  if ((typeof node.type === "string" || node.type === Fragment) && props.children !== undefined) props.children = texts(props.children);
  next?.(node);
};
