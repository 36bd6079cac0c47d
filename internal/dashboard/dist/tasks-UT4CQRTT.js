import{a,b,c,d}from"./chunk-HVGIWOFT.js";import"./chunk-JQYGEMHU.js";import"./chunk-FRFH4UC7.js";export{c as AgentLink,a as TaskState,d as Tasks,b as what};
