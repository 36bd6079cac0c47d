import{a,b,c,d}from"./chunk-3XJHJK6T.js";import"./chunk-2CE7QOL4.js";import"./chunk-2S4BNW2Q.js";export{c as AgentLink,a as TaskState,d as Tasks,b as what};
