import{a,b,c,d}from"./chunk-2JGVU2SU.js";import"./chunk-ATZ2TSOO.js";import"./chunk-GA2PO76C.js";export{c as AgentLink,a as TaskState,d as Tasks,b as what};
