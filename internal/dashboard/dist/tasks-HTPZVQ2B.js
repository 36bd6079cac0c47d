import{a,b,c,d}from"./chunk-4V5UUQSI.js";import"./chunk-UX6DYH7P.js";import"./chunk-MEIMG7IO.js";export{c as AgentLink,a as TaskState,d as Tasks,b as what};
