import{a,b,c,d}from"./chunk-TH4BOEN4.js";import"./chunk-M4NMJUHE.js";import"./chunk-6N2JVGTY.js";export{c as AgentLink,a as TaskState,d as Tasks,b as what};
